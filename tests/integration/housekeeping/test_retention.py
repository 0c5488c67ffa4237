"""Retention deletes expired executions with everything that belongs to them, and nothing that is still needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from threading import Event, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, transaction
from uuid_utils import compat

from jobs.db.clock import read_pruned_before
from jobs.definitions.job_status import with_status
from jobs.housekeeping import history_retention
from jobs.housekeeping.history_retention import PruneResult, prune_history
from jobs.models import (
    Attempt,
    Dependency,
    DroppedRange,
    Execution,
    ExecutionEvent,
    Job,
    Output,
    RetentionMark,
    Schedule,
    ScheduleVersion,
)
from jobs.models.ids import first_id
from jobs.tasks import prune_history as prune_history_task
from tests.support.barriers import at_once
from tests.support.factories import make_execution, make_job, make_output, make_schedule, make_worker

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
RETENTION = 90 * DAY


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - days * DAY


def old_id(at: datetime) -> UUID:
    identifier: UUID = compat.uuid7(nanoseconds=int(at.timestamp() * 1_000_000_000))
    return identifier


def execution(job: Job, ended: float | None, *, state: str = "succeeded", **fields: Any) -> UUID:
    """Create an execution that finished `ended` days ago, a day after it fired; None: fired long ago, unfinished."""
    at = days_ago(200 if ended is None else ended + 1)
    row = make_execution(job=job)
    identifier = old_id(at)
    values: dict[str, Any] = {"id": identifier, "run_id": identifier, "scheduled_for": at, "fired_at": at} | fields
    if ended is not None:
        values |= {"state": state, "ended_at": days_ago(ended)}
    Execution.objects.filter(id=row.id).update(**values)
    return identifier


def attempt(execution_id: UUID, at: datetime) -> Attempt:
    attempt_row = Attempt.objects.create(
        execution_id=execution_id,
        number=1,
        worker_id=make_worker().worker_id,
        incarnation=1,
        placed_at=at,
        claimed_at=at,
    )
    make_output(attempt_row)
    return attempt_row


def prune(**options: Any) -> PruneResult:
    return prune_history(retention=RETENTION, **options)


def remaining_ids() -> set[UUID]:
    return set(Execution.objects.values_list("id", flat=True))


def test_expired_executions_are_deleted_with_attempts_and_outputs() -> None:
    job = make_job()
    old, young, last = execution(job, 91), execution(job, 89), execution(job, 1)
    for each in (old, young):
        attempt(each, days_ago(92))
    result = prune()
    assert (result.executions, result.finished) == (1, True)
    assert remaining_ids() == {young, last}
    assert set(Attempt.objects.values_list("execution_id", flat=True)) == {young}
    assert Output.objects.count() == 1
    assert prune().executions == 0


@pytest.mark.parametrize("state", ["ready", "blocked"])
def test_unfinished_executions_are_kept(state: str) -> None:
    job = make_job()
    waiting = execution(job, None)
    Execution.objects.filter(id=waiting).update(state=state)
    execution(job, 1)
    assert prune().executions == 0
    assert waiting in remaining_ids()


def test_run_is_kept_until_all_of_it_has_finished() -> None:
    upstream, downstream = make_job(), make_job()
    first = execution(upstream, 150)
    second = execution(downstream, None, run_id=first)
    for job in (upstream, downstream):
        execution(job, 1)
    assert prune().executions == 0
    Execution.objects.filter(id=second).update(state="succeeded", ended_at=days_ago(100))
    assert prune().executions == 2
    assert not remaining_ids() & {first, second}


def test_upstreams_of_a_blocked_scheduled_dependent_are_kept() -> None:
    upstream, downstream = make_job(), make_job()
    Dependency.objects.create(job=downstream, upstream=upstream)
    looked_at = execution(upstream, 150)
    execution(upstream, 1)
    waiting = execution(downstream, None, trigger="schedule")
    Execution.objects.filter(id=waiting).update(state="blocked")
    assert prune().executions == 0
    Execution.objects.filter(id=waiting).update(state="skipped", ended_at=days_ago(1))
    assert prune().executions == 1
    assert looked_at not in remaining_ids()


def test_last_execution_of_a_job_keeps_only_its_row() -> None:
    job = make_job()
    execution(job, 200, state="failed")
    last = execution(job, 150, state="timed_out")
    attempt(last, days_ago(151))
    prune()
    assert remaining_ids() == {last}
    assert not Attempt.objects.exists()
    assert [each.status for each in with_status(Job.objects.filter(id=job.id))] == ["timed_out"]  # type: ignore[attr-defined]


def test_all_executions_of_a_cancelled_job_are_deleted() -> None:
    job = make_job(state="cancelled")
    execution(job, 150, state="cancelled")
    assert prune().executions == 1
    assert not remaining_ids()


def test_last_execution_of_a_schedule_with_dependents_is_kept() -> None:
    schedule = make_schedule()
    Dependency.objects.create(job=make_job(), upstream=schedule.job)
    last = execution(schedule.job, 150, schedule_id=schedule.id)
    before = execution(schedule.job, 160, schedule_id=schedule.id)
    by_hand = execution(schedule.job, 1)
    prune()
    assert remaining_ids() == {last, by_hand}
    assert before not in remaining_ids()


def test_root_of_the_last_run_of_a_job_with_dependents_is_kept() -> None:
    root_job, job = make_job(), make_job()
    Dependency.objects.create(job=make_job(), upstream=job)
    root = execution(root_job, 150)
    member = execution(job, 150, run_id=root)
    execution(root_job, 1)
    prune()
    assert {root, member} <= remaining_ids()


def test_pages_continue_and_a_new_round_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_retention, "PAGE_EXECUTIONS", 2)
    job = make_job()
    unfinished = execution(job, None)
    ended = [execution(job, 100) for _ in range(5)]
    execution(job, 1)
    out_of_time = prune(within_seconds=0)
    assert (out_of_time.executions, out_of_time.finished) == (0, False)
    history_retention._prune_page(days_ago(90))
    assert len(remaining_ids() & set(ended)) == 4
    assert RetentionMark.objects.get().cursor is not None
    assert prune().finished
    assert remaining_ids() & {unfinished, *ended} == {unfinished}
    assert RetentionMark.objects.get().cursor is None


def test_mark_is_set_by_the_first_deletion_and_never_decreases() -> None:
    job = make_job()
    execution(job, 1)
    prune()
    assert read_pruned_before() is None, "nothing was deleted"
    execution(job, 100)
    horizon = prune().horizon
    assert read_pruned_before() == horizon
    execution(job, 500)
    assert prune_history(retention=400 * DAY).executions == 1
    assert read_pruned_before() == horizon


@pytest.mark.django_db(transaction=True)
def test_failed_deletion_leaves_rows_and_mark_unchanged() -> None:
    job = make_job()
    old = execution(job, 100)
    execution(job, 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;"
            " CREATE TRIGGER refuse BEFORE DELETE ON jobs_execution FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    try:
        with pytest.raises(DatabaseError, match="not this one"):
            prune()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION refuse CASCADE")
    assert old in remaining_ids()
    assert read_pruned_before() is None
    assert prune().executions == 1


def versions_of(schedule: Schedule) -> list[int]:
    return sorted(schedule.history.values_list("number", flat=True))


def with_history(schedule: Schedule, **fields: Any) -> Schedule:
    kept = ("kind", "expression", "timezone", "starts_at", "ends_at", "jitter_seconds", "max_count")
    ends = [200.0, 150.0, 100.0, 50.0, None]
    for number, to_at in enumerate(ends, start=1):
        ScheduleVersion.objects.create(
            schedule=schedule,
            number=number,
            from_at=days_ago(250 if number == 1 else ends[number - 2] or 0),
            to_at=None if to_at is None else days_ago(to_at),
            **({name: getattr(schedule, name) for name in kept} | fields),
        )
    return schedule


def test_expired_schedule_versions_are_deleted_except_the_first() -> None:
    plain, limited = with_history(make_schedule()), with_history(make_schedule(), max_count=5)
    counted = with_history(make_schedule(), max_count=5, settled_before=3)
    assert prune().schedule_versions == 4
    assert versions_of(plain) == versions_of(counted) == [1, 4, 5]
    assert versions_of(limited) == [1, 2, 3, 4, 5], "a limit counts all instants, so the whole history stays"
    assert read_pruned_before() is not None


def dropped(schedule: Schedule, last: float) -> DroppedRange:
    at = days_ago(last)
    return DroppedRange.objects.create(
        id=old_id(at), schedule=schedule, first=at - DAY, last=at, count=3, reason="catch_up", created_at=at
    )


def test_expired_dropped_ranges_are_deleted() -> None:
    schedule = make_schedule()
    dropped(schedule, 91)
    kept = dropped(schedule, 89)
    assert prune().dropped_ranges == 1
    assert DroppedRange.objects.get() == kept


def test_last_dropped_range_of_an_upstream_is_kept() -> None:
    schedule = make_schedule()
    Dependency.objects.create(job=make_job(), upstream=schedule.job)
    dropped(schedule, 100)
    assert prune().dropped_ranges == 0
    execution(schedule.job, 1, schedule_id=schedule.id)
    assert prune().dropped_ranges == 1


def partition(day: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE jobs_executionevent_{day:%Y%m%d} PARTITION OF jobs_executionevent"
            f" FOR VALUES FROM ('{day} 00:00:00+00') TO ('{day + DAY} 00:00:00+00')"
        )


def add_event(execution_id: UUID, at: datetime) -> None:
    ExecutionEvent.objects.create(id=uuid4(), created_at=at, execution_id=execution_id, attempt=1, name="x", detail={})


def test_events_are_deleted_with_their_partitions() -> None:
    expired, kept = days_ago(91), days_ago(89)
    for at in (expired, kept):
        partition(at.date())
        add_event(uuid4(), at)
    # This day has no partition.
    add_event(uuid4(), days_ago(300))
    assert prune().partitions == [f"jobs_executionevent_{expired:%Y%m%d}"]
    assert [each.created_at for each in ExecutionEvent.objects.all()] == [kept]


@pytest.mark.parametrize("has_partition", [True, False])
def test_events_of_unfinished_executions_are_kept(has_partition: bool) -> None:
    at = days_ago(150)
    if has_partition:
        partition(at.date())
    unfinished = execution(make_job(), None)
    add_event(unfinished, at)
    assert prune().partitions == []
    assert ExecutionEvent.objects.count() == 1
    Execution.objects.filter(id=unfinished).update(state="succeeded", ended_at=days_ago(100))
    assert len(prune().partitions) == (1 if has_partition else 0)
    assert ExecutionEvent.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_partition_in_use_is_dropped_by_a_later_run() -> None:
    day = days_ago(100).date()
    partition(day)
    with read_by_another(f"jobs_executionevent_{day:%Y%m%d}"):
        assert prune().partitions == []
    assert prune().partitions == [f"jobs_executionevent_{day:%Y%m%d}"]


@contextmanager
def read_by_another(table: str) -> Iterator[None]:
    """Read on another connection, in a transaction that stays open."""
    reading, done = Event(), Event()

    def read() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
                reading.set()
                done.wait(30)
        finally:
            connection.close()

    thread = Thread(target=read)
    thread.start()
    try:
        assert reading.wait(30)
        yield
    finally:
        done.set()
        thread.join(30)


@pytest.mark.django_db(transaction=True)
def test_concurrent_runs_delete_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_retention, "PAGE_EXECUTIONS", 5)
    job = make_job()
    for _ in range(40):
        execution(job, 100)
    execution(job, 1)
    results = at_once([prune, prune])
    results.append(prune())
    assert sum(each.executions for each in results) == 40
    assert len(remaining_ids()) == 1


def test_first_id_lies_between_ids_before_and_after() -> None:
    at = days_ago(3)
    assert old_id(at - timedelta(milliseconds=2)) < first_id(at) <= old_id(at)


def test_system_task_uses_the_setting(settings: Any) -> None:
    job = make_job()
    execution(job, 40)
    execution(job, 1)
    assert prune_history_task()["executions"] == 0
    settings.PUNCTUAL_RETENTION_DAYS = 30.0
    assert prune_history_task()["executions"] == 0, "a round has just ended"
    RetentionMark.objects.update(round_ended_at=days_ago(0.01))
    assert prune_history_task()["executions"] == 1
