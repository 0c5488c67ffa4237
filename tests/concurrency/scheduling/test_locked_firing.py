"""A row locked by another connection delays only its own schedule, and no instant is lost or fires twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, transaction

from jobs.domain import limits
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import Execution, Job, Queue, Schedule, Trigger
from jobs.scheduling.firing import FireResult, fire_due_schedules, fire_held_schedules
from jobs.scheduling.held_schedules import HeldSchedules
from tests.support.barriers import DEADLINE_SECONDS
from tests.support.factories import make_execution, make_job, make_schedule
from tests.support.locks import locked
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# Less than the lock timeout of a statement, with a margin for a busy machine.
PROMPT_SECONDS = 3.0


def due(job: Job, *, ago: float = 0.0, **fields: object) -> Schedule:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    return make_schedule(job=job, expression="3600", starts_at=at, next_instant=at, **fields)


def fired(*schedules: Schedule) -> list[int]:
    return [Execution.objects.filter(schedule=schedule).count() for schedule in schedules]


def fire_promptly() -> FireResult:
    began = time.monotonic()
    result = fire_due_schedules()
    assert time.monotonic() - began < PROMPT_SECONDS
    return result


@pytest.mark.parametrize("overlap", ["skip", "cancel_running"])
def test_job_being_edited_delays_no_other_schedule(overlap: str) -> None:
    busy, idle = make_job(overlap=overlap), make_job(overlap=overlap)
    stuck, free = due(busy, ago=2), due(idle, ago=1)
    with locked(busy, no_key=True):
        assert fire_promptly().fired == 1
        assert fired(stuck, free) == [0, 1]
    assert fire_promptly().fired == 1
    assert fired(stuck, free) == [1, 1]


@pytest.mark.parametrize("overlap", ["queue", "skip"])
def test_job_locked_for_long_delays_no_other_schedule(overlap: str) -> None:
    busy, idle = make_job(overlap=overlap), make_job()
    stuck, free = due(busy, ago=2), due(idle, ago=1)
    with locked(busy):
        assert fire_promptly().fired == 1
        assert fired(stuck, free) == [0, 1]
    fire_promptly()
    assert fired(stuck, free) == [1, 1]


def test_locked_queue_or_version_delays_only_its_own_schedules() -> None:
    queue = Queue.objects.create(name="other")
    in_queue, of_version, idle = make_job(queue=queue), make_job(), make_job()
    assert of_version.current_version is not None
    rows = [due(in_queue, ago=3), due(of_version, ago=2), due(idle, ago=1)]
    with locked(queue, of_version.current_version):
        assert fire_promptly().fired == 1
        assert fired(*rows) == [0, 0, 1]
    fire_promptly()
    assert fired(*rows) == [1, 1, 1]


def test_locked_run_to_cancel_delays_only_its_own_schedule() -> None:
    job = make_job(overlap="cancel_running", max_concurrency=1)
    running = make_execution(job=job)
    stuck, free = due(job, ago=2), [due(make_job(), ago=1) for _ in range(6)]
    with locked(running, no_key=True):
        assert fire_promptly().fired == 6
        assert fired(stuck, *free) == [0, 1, 1, 1, 1, 1, 1]
    wait_for(lambda: fire_due_schedules().fired, "the schedule fires once the run is unlocked", seconds=10)
    assert fired(stuck) == [1]
    assert Execution.objects.get(id=running.id).state == "cancelled"


def test_many_locked_runs_to_cancel_delay_no_other_schedule() -> None:
    jobs = [make_job(overlap="cancel_running", max_concurrency=1) for _ in range(20)]
    running = [make_execution(job=job) for job in jobs]
    idle = make_job(max_concurrency=None)
    stuck, free = [due(job, ago=2) for job in jobs], [due(idle, ago=2) for _ in range(20)]
    held = HeldSchedules()
    with locked(*running, no_key=True):
        began = time.monotonic()
        fire_due_schedules(held=held)
        assert time.monotonic() - began < PROMPT_SECONDS
        assert fired(*free) == [1] * 20
        assert set(held.ids()) == {schedule.id for schedule in stuck}
    wait_for(lambda: fire_held_schedules(held).fired and all(fired(*stuck)), "they fire", seconds=10)
    assert Execution.objects.filter(id__in=[e.id for e in running], state="cancelled").count() == 20
    assert fired(*stuck, *free) == [1] * 40


def test_blocked_schedules_are_separated_from_free_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time suffices for bisecting only a few; each further search has smaller batches."""
    monkeypatch.setattr(limits, "FIRE_LOCK_TIMEOUT_SECONDS", 0.02)
    monkeypatch.setattr(limits, "FIRE_BISECT_SECONDS", 0.1)
    job = make_job(max_concurrency=None)
    rows = [due(job, ago=2) for _ in range(32)]
    stuck, free = rows[::2], rows[1::2]
    held = HeldSchedules()
    with executions_of(stuck):
        fire_due_schedules(held=held)
        wait_for(lambda: fire_held_schedules(held) and all(fired(*free)), "the free schedules fire")
    wait_for(lambda: fire_held_schedules(held) and not held.ids(), "nothing is held")
    assert fired(*rows) == [1] * 32


@contextmanager
def executions_of(schedules: Sequence[Schedule]) -> Iterator[None]:
    """Keep a transaction open that has inserted the executions of the schedules' instants."""
    stored, done = threading.Event(), threading.Event()

    def store() -> None:
        try:
            with transaction.atomic():
                create_executions(
                    [
                        NewExecution(s.job_id, Trigger.BACKFILL, schedule_id=s.id, scheduled_for=s.next_instant)
                        for s in schedules
                    ]
                )
                stored.set()
                done.wait(DEADLINE_SECONDS)
        finally:
            connection.close()

    other = threading.Thread(target=store, daemon=True)
    other.start()
    assert stored.wait(DEADLINE_SECONDS)
    try:
        yield
    finally:
        done.set()
        other.join(DEADLINE_SECONDS)


def test_schedules_of_locked_jobs_do_not_fill_the_batches() -> None:
    busy = [make_job(overlap="skip") for _ in range(4)]
    stuck = [due(job, ago=3) for job in busy for _ in range(2)]
    free = due(make_job(), ago=1)
    held = HeldSchedules()
    with locked(*busy, no_key=True):
        for _ in range(5):
            fire_due_schedules(limit=2, held=held)
        assert fired(*stuck, free) == [0] * 8 + [1]
        assert fire_due_schedules(limit=2, held=held) == FireResult(), "they are no longer in the batches of the others"
    wait_for(lambda: fire_held_schedules(held).postponed == 0 and all(fired(*stuck)), "they fire", seconds=10)
    assert held.ids() == []


def test_failing_schedule_is_retried_apart_from_others(scheduled_executions_refused: None) -> None:
    held = HeldSchedules()
    due(make_job())
    with pytest.raises(DatabaseError):
        fire_due_schedules(held=held)
    assert len(held.ids()) == 1
    assert fire_due_schedules(held=held) == FireResult()
    assert fire_held_schedules(held) == FireResult(), "its backoff has not ended"


def test_schedule_that_violates_a_constraint_is_quarantined() -> None:
    bad, good = due(make_job(), ago=2), [due(make_job(), ago=1) for _ in range(5)]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE jobs_execution ADD CONSTRAINT refused CHECK (schedule_id <> '{bad.id}') NOT VALID")
    try:
        result = fire_promptly()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobs_execution DROP CONSTRAINT refused")
    assert (result.fired, result.quarantined) == (5, 1)
    assert fired(*good) == [1] * 5
    bad.refresh_from_db()
    assert bad.quarantined_at is not None
    assert "refused" in bad.quarantine_error
    assert bad.next_instant is None
