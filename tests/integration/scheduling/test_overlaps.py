"""A firing of a busy job waits, is skipped or cancels the oldest executions, by the job's overlap policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from jobs.db import sql
from jobs.domain import limits
from jobs.domain.states import State
from jobs.models import Execution, Job, Schedule
from jobs.scheduling import overlap as overlaps
from jobs.scheduling.firing import FireResult, fire_due_schedules
from jobs.scheduling.overlap import MAX_CANCELLED_EXECUTIONS, OverlapPolicy
from tests.support.factories import make_execution, make_job, make_schedule, make_worker, run_on

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def due_schedule(job: Job, *, minutes: float = 0.01, **fields: Any) -> Schedule:
    """Create a schedule due once a minute since then that catches up with all instants."""
    first = datetime.now(UTC) - minutes * MINUTE
    return make_schedule(job=job, **{"starts_at": first, "next_instant": first, "catch_up": "all"} | fields)


def outcomes(schedule: Schedule) -> list[tuple[str, str | None]]:
    rows = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
    return list(rows.values_list("state", "reason"))


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_running"])
def test_idle_job_fires(overlap: str) -> None:
    schedule = due_schedule(make_job(overlap=overlap, max_concurrency=1))
    assert fire_due_schedules() == FireResult(schedules=1, fired=1)
    assert outcomes(schedule) == [("ready", None)]


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel_running"])
def test_job_without_max_concurrency_always_fires(overlap: str) -> None:
    job = make_job(overlap=overlap, max_concurrency=None)
    busy = [make_execution(job=job) for _ in range(3)]
    schedule = due_schedule(job, minutes=2.5)
    assert fire_due_schedules().fired == 3
    assert outcomes(schedule) == [("ready", None)] * 3
    assert Execution.objects.filter(id__in=[e.id for e in busy], state="ready").count() == 3


def test_queue_policy_leaves_running_executions_alone() -> None:
    job = make_job(overlap="queue", max_concurrency=1)
    running = make_execution(job=job)
    run_on(make_worker(), running)
    schedule = due_schedule(job, minutes=1.5)
    assert fire_due_schedules().fired == 2
    assert outcomes(schedule) == [("ready", None)] * 2
    running.refresh_from_db()
    assert (running.state, running.cancel_requested_at) == ("running", None)


def test_queue_policy_skips_beyond_the_backlog_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BACKLOG", 3)
    job = make_job(overlap="queue", max_concurrency=1)
    make_execution(job=job)
    schedule = due_schedule(job, minutes=4.5)
    assert fire_due_schedules() == FireResult(schedules=1, fired=2, skipped=3)
    assert outcomes(schedule) == [("ready", None)] * 2 + [("skipped", "backlog")] * 3


def test_backlog_is_counted_per_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BACKLOG", 1)
    full, idle = make_job(), make_job()
    make_execution(job=full)
    assert fire_outcomes(due_schedule(full), due_schedule(idle)) == [[("skipped", "backlog")], [("ready", None)]]


def fire_outcomes(*schedules: Schedule) -> list[list[tuple[str, str | None]]]:
    fire_due_schedules()
    return [outcomes(schedule) for schedule in schedules]


@pytest.mark.parametrize("state", ["ready", "blocked", "running"])
def test_skip_policy_records_skipped_instants(state: str) -> None:
    job = make_job(overlap="skip", max_concurrency=1)
    busy = make_execution(job=job, state=State.BLOCKED if state == "blocked" else State.READY)
    if state == "running":
        run_on(make_worker(), busy)
    schedule = due_schedule(job)
    assert fire_due_schedules() == FireResult(schedules=1, skipped=1)
    assert outcomes(schedule) == [("skipped", "overlap")]
    assert Execution.objects.get(schedule=schedule).ended_at is not None
    schedule.refresh_from_db()
    assert schedule.next_instant is not None
    assert schedule.next_instant > datetime.now(UTC), "a skipped instant does not fire later"


def test_skip_policy_fires_up_to_max_concurrency() -> None:
    job = make_job(overlap="skip", max_concurrency=3)
    make_execution(job=job)
    schedule = due_schedule(job, minutes=3.5)
    fire_due_schedules()
    assert outcomes(schedule) == [("ready", None)] * 2 + [("skipped", "overlap")] * 2


def test_skip_policy_counts_all_schedules_of_the_job_in_a_batch() -> None:
    job = make_job(overlap="skip", max_concurrency=1)
    first, second = due_schedule(job), due_schedule(job)
    assert fire_due_schedules() == FireResult(schedules=2, fired=1, skipped=1)
    assert sorted(outcomes(first) + outcomes(second), key=str) == [("ready", None), ("skipped", "overlap")]


def test_finished_and_cancelling_executions_do_not_count() -> None:
    job = make_job(overlap="skip", max_concurrency=1)
    make_execution(job=job, state=State.MISSED)
    cancelling = make_execution(job=job)
    run_on(make_worker(), cancelling)
    Execution.objects.filter(id=cancelling.id).update(cancel_requested_at=datetime.now(UTC))
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]


def test_cancel_running_requests_cancellation_and_fires() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    running = make_execution(job=job)
    run_on(make_worker(), running)
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]
    running.refresh_from_db()
    assert running.state == "running", "its worker has to confirm"
    assert running.cancel_requested_at is not None


def test_cancel_running_cancels_waiting_executions() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    waiting = make_execution(job=job)
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]
    waiting.refresh_from_db()
    assert (waiting.state, waiting.reason) == ("cancelled", "cancelled")


def test_cancel_running_cancels_only_the_oldest() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=2)
    oldest, newer = make_execution(job=job), make_execution(job=job)
    fire_due_schedules_of(job)
    assert Execution.objects.get(id=oldest.id).state == "cancelled"
    assert Execution.objects.get(id=newer.id).state == "ready"


def test_cancel_running_cancels_down_to_the_limit() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=2)
    rows = [make_execution(job=job) for _ in range(4)]
    fire_due_schedules_of(job)
    assert [Execution.objects.get(id=e.id).state for e in rows] == ["cancelled"] * 3 + ["ready"]


def fire_due_schedules_of(job: Job) -> None:
    assert fire_outcomes(due_schedule(job)) == [[("ready", None)]]


def test_cancel_running_keeps_only_the_latest_instant_of_a_batch() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    waiting = make_execution(job=job)
    schedule = due_schedule(job, minutes=2.5)
    assert fire_due_schedules() == FireResult(schedules=1, fired=1, skipped=2)
    assert outcomes(schedule) == [("skipped", "overlap")] * 2 + [("ready", None)]
    waiting.refresh_from_db()
    assert waiting.state == "cancelled"


def test_cancel_running_spares_other_jobs() -> None:
    other = make_execution()
    job = make_job(overlap="cancel_running", max_concurrency=1)
    make_execution(job=job)
    fire_due_schedules_of(job)
    other.refresh_from_db()
    assert other.state == "ready"


def test_missed_instants_neither_count_nor_cancel() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    waiting = make_execution(job=job)
    schedule = due_schedule(job, minutes=2.5, catch_up="none")
    assert fire_due_schedules() == FireResult(schedules=1, missed=3)
    assert {state for state, _ in outcomes(schedule)} == {"missed"}
    waiting.refresh_from_db()
    assert waiting.state == "ready"


@pytest.mark.parametrize(
    ("overlap", "limit", "counted"),
    [
        ("queue", 10**9, limits.MAX_BACKLOG),
        ("skip", 3, 3),
        ("skip", None, 0),
        ("cancel_running", 3, 3 + MAX_CANCELLED_EXECUTIONS),
        (None, 10**9, 0),
    ],
)
def test_count_limit_follows_the_policy(overlap: str | None, limit: int | None, counted: int) -> None:
    assert OverlapPolicy(overlap, limit).count_limit == counted


def test_executions_are_counted_up_to_the_limit_of_their_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = make_job(overlap="skip", max_concurrency=10**9), make_job(overlap="skip", max_concurrency=2)
    for _ in range(5):
        make_execution(job=narrow)
    due_schedule(wide)
    due_schedule(narrow)
    counted: dict[UUID, int] = {}

    def fetch(name: str, parameters: Any, row: type[Any]) -> list[Any]:
        rows = sql.fetch(name, parameters, row)
        counted.update((each.job_id, each.count) for each in rows)
        return rows

    monkeypatch.setattr(overlaps, "sql", SimpleNamespace(fetch=fetch))
    assert fire_due_schedules() == FireResult(schedules=2, fired=1, skipped=1)
    assert counted == {wide.id: 0, narrow.id: 2}
