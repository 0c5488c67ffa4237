"""Steps of beat's stages: a failing part stops no other, and no step reads more than it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.beat import firing, stages
from jobs.beat.scheduler import Scheduler
from jobs.db.due_window import DueEntry
from jobs.db.leader_lease import REAPING, REPUBLISHING
from jobs.execution import transitions
from jobs.fleet import reaping
from jobs.models import BeatLease, Execution, Queue, ReaperStamp
from jobs.scheduling.firing import fire_due_schedules
from scheduler_project.celery import app
from tests.support.factories import make_execution, make_job, make_schedule, make_worker, run_on, stamp_reaping
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

PARTS = [
    "reap_lost_workers",
    "sweep_blocked",
    "arm_idle_delays",
    "sweep_parked",
    "expire_overdue",
    "increment_counters",
]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(app=app)
    yield scheduler
    scheduler.close()
    scheduler._listener.close()


@pytest.mark.parametrize("failing", PARTS)
def test_failing_part_of_reaping_does_not_stop_the_others(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    done: list[str] = []

    def watched(name: str) -> None:
        part = getattr(stages, name)

        def call(*args: object, **options: object) -> object:
            if name == failing:
                raise RuntimeError(name)
            answer = part(*args, **options)
            done.append(name)
            return answer

        monkeypatch.setattr(stages, name, call)

    for name in PARTS:
        watched(name)
    scheduler._reap.step()
    assert done == [name for name in PARTS if name != failing]


def test_reclaimed_execution_is_placed_at_once_even_if_another_part_fails(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError

    run_on(make_worker(name="again"), make_execution())
    stamp_reaping()
    Execution.objects.update(incarnation=0)
    monkeypatch.setattr(stages, "sweep_blocked", fail)
    monkeypatch.setattr(stages, "expire_overdue", fail)
    scheduler._place._notified.clear()
    scheduler._reap.step()
    assert Execution.objects.get().state == "ready"
    assert scheduler._place._notified.is_set()
    assert reaping.reap_lost_workers() == reaping.ReapResult()


def test_fired_execution_is_placed_before_retries_are_read(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[bool] = []

    def wake() -> int:
        notified.append(scheduler._place._notified.is_set())
        return 0

    make_schedule()
    monkeypatch.setattr(transitions, "wake_backed_off", wake)
    scheduler._firing.step()
    assert notified == [True]


def test_retries_are_queried_only_when_one_is_due(scheduler: Scheduler) -> None:
    make_execution()
    Execution.objects.update(state="backing_off", retry_at=datetime.now(UTC) + timedelta(seconds=1))

    def queries_retries() -> bool:
        with CaptureQueriesContext(connection) as queries:
            scheduler._firing.step()
        return any("/* wake_backed_off */" in query["sql"] for query in queries)

    assert queries_retries()
    assert not queries_retries()
    wait_for(lambda: queries_retries() and Execution.objects.filter(state="ready").exists(), "the retry to be woken")
    assert not queries_retries()


@pytest.mark.parametrize(("pass_seconds", "rest"), [(0.0001, 0.006), (0.012, 0.012), (1.0, 0.03)])
def test_placing_rests_longer_after_a_slow_pass_that_filled_all_workers(pass_seconds: float, rest: float) -> None:
    assert stages.compute_rest_seconds(pass_seconds) == pytest.approx(rest)


def test_late_schedule_fires_even_under_overload(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "fire_due_schedules", partial(fire_due_schedules, limit=1))
    job, now = make_job(max_concurrency=None), datetime.now(UTC)
    late = make_schedule(job=job, expression="3600", next_instant=now - timedelta(minutes=1))
    for _ in range(30):
        make_schedule(job=job, expression="3600", starts_at=now, next_instant=now)
    for _ in range(10):
        scheduler._backlog.step()
    assert Execution.objects.filter(schedule=late).exists()
    assert Execution.objects.exclude(schedule=late).count() >= 9, "what is due now fires first"


def test_firing_announces_only_after_its_commit() -> None:
    announced: list[tuple[list[UUID], list[UUID]]] = []

    def announce(found: Sequence[DueEntry], upcoming: Sequence[DueEntry]) -> None:
        announced.append(([entry.schedule_id for entry in found], [entry.schedule_id for entry in upcoming]))

    now = datetime.now(UTC)
    schedule = make_schedule(expression="3600", starts_at=now, next_instant=now)
    with transaction.atomic():
        assert fire_due_schedules(announce=announce).fired == 1
        assert not announced
    assert announced == [([schedule.id], [schedule.id])]


def test_failing_schedule_does_not_make_beat_oversleep_another(
    scheduler: Scheduler, settings: Settings, scheduled_executions_refused: None
) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 60.0
    now = datetime.now(UTC)
    make_schedule(expression="3600", starts_at=now, next_instant=now)
    soon = now + timedelta(seconds=5)
    make_schedule(expression="3600", starts_at=soon, next_instant=soon)
    scheduler._backlog._notified.clear()
    assert scheduler._firing.step() <= 5
    assert scheduler._backlog._notified.is_set(), "the backlog stage retries it"


def statements(scheduler: Scheduler) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        scheduler._place.step()
    return [query["sql"] for query in captured if query["sql"] not in {"BEGIN", "COMMIT"}]


def test_idle_pass_is_two_statements_and_finds_a_new_pool_soon(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 600.0
    Queue.objects.get_or_create(name="default")
    assert len(statements(scheduler)) == 3
    lock, read = statements(scheduler)
    assert "pg_try_advisory_xact_lock" in lock
    assert "FROM" not in lock, "nothing is read before the lock"
    assert "jobs_execution" in read
    make_worker(pool="far")
    make_execution(job=make_job(queue=Queue.objects.create(name="far", pool="far")))
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 0.0
    scheduler._place._next_pools = 0.0
    scheduler._place.step()
    assert Execution.objects.get().state == "queued"


def wait_for_redis(scheduler: Scheduler) -> None:
    """Only a beat connected to Redis republishes."""

    def connected() -> float:
        scheduler._listener.wait(0.01)
        return scheduler._listener.connected_seconds

    wait_for(connected, "Redis to be connected", seconds=10)


def test_one_beat_reaps_and_another_takes_over_when_it_closes(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    other = Scheduler(app=app)

    def reap(**_: object) -> reaping.ReapResult:
        calls.append("reaped")
        return reaping.ReapResult()

    def republish(_: object) -> int:
        calls.append("republished")
        return 0

    monkeypatch.setattr(stages, "reap_lost_workers", reap)
    monkeypatch.setattr(stages, "republish_unclaimed", republish)

    def run_steps(by: Scheduler) -> list[str]:
        calls.clear()
        by._publish._next_republish = 0.0
        by._reap.step()
        by._publish.step()
        return list(calls)

    try:
        for each in (scheduler, other):
            wait_for_redis(each)
        assert run_steps(scheduler) == ["reaped", "republished"]
        assert run_steps(other) == []
        assert run_steps(scheduler) == ["reaped", "republished"]
        with CaptureQueriesContext(connection) as captured:
            run_steps(other)
        assert len([q for q in captured if "jobs_execution" in q["sql"]]) == 0
        scheduler.close()
        assert run_steps(other) == ["reaped", "republished"]
    finally:
        other.close()
        other._listener.close()


def test_beat_without_the_lease_writes_the_reaper_stamp(scheduler: Scheduler) -> None:
    """Otherwise each change of the leader would look like an outage, and no worker would be marked lost."""
    stamp_reaping(ago=60)
    BeatLease.objects.create(duty=REAPING, holder=uuid4(), lease_until=datetime.now(UTC) + timedelta(minutes=1))
    scheduler._reap.step()
    assert datetime.now(UTC) - ReaperStamp.objects.get().stamped_at < timedelta(seconds=30)


def test_beat_without_redis_leaves_republication_to_others(scheduler: Scheduler) -> None:
    scheduler._publish.republish()
    assert not BeatLease.objects.filter(duty=REPUBLISHING).exists(), "it is not connected to Redis yet"
    wait_for_redis(scheduler)
    scheduler._publish.republish()
    assert BeatLease.objects.filter(duty=REPUBLISHING).exists()
