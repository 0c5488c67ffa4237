"""Concurrent backfills and beats of the same schedules create every instant once."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from jobs.domain import limits
from jobs.domain.recurrence import CatchUp, Kind
from jobs.models import Backfill, Execution
from jobs.scheduling import backfill as backfilling
from jobs.scheduling.backfill import advance_backfills, request_backfill
from jobs.scheduling.firing import fire_due_schedules
from tests.support.barriers import at_once
from tests.support.factories import make_job
from tests.support.own_connection import own_connection
from tests.support.schedules import add_schedule

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
DEADLINE = timedelta(seconds=30)
# Less than two lock timeouts of other statements, with a margin for a busy machine.
STEP_SECONDS = 4.0


def advance() -> None:
    deadline = datetime.now(UTC) + DEADLINE
    while Backfill.objects.exclude(state="done").exists():
        advance_backfills()
        assert datetime.now(UTC) < deadline, "the backfills do not finish"


def test_concurrent_backfills_and_beats_create_every_instant_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_BATCH_INSTANTS", 7)
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 10_000)
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS_PER_SCHEDULE", 5)
    now = datetime.now(UTC)
    start = now - 60.5 * MINUTE
    job = make_job(max_concurrency=None)
    rows = [add_schedule(job, Kind.EVERY, "60", created=start, catch_up=CatchUp.ALL) for _ in range(3)]
    backfills = [
        request_backfill(job.id, from_at=start, to_at=start + 40 * MINUTE, by="one"),
        request_backfill(job.id, from_at=start + 20 * MINUTE, to_at=now, by="two"),
    ]

    def beat() -> None:
        while fire_due_schedules(limit=1).schedules:
            pass

    at_once([advance, advance, beat, beat])

    for schedule in rows:
        executions = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
        assert list(executions.values_list("scheduled_for", flat=True)) == [start + n * MINUTE for n in range(61)]
    created = 0
    for backfill in backfills:
        backfill.refresh_from_db()
        created += backfill.created_count
    assert created == Execution.objects.filter(trigger="backfill").count()


def test_concurrent_backfills_respect_the_limit_of_unfinished_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BACKFILL_MAX_UNFINISHED_EXECUTIONS", 5)
    start = datetime.now(UTC) - 600 * MINUTE
    for _ in range(5):
        job = make_job()
        add_schedule(job, Kind.EVERY, "60", created=start)
        for n in range(4):
            at = start + n * 100 * MINUTE
            request_backfill(job.id, from_at=at, to_at=at + 99 * MINUTE, by="test")

    at_once([advance_backfills] * 4)
    advance_backfills()

    jobs = set(Backfill.objects.values_list("job_id", flat=True))
    assert [Execution.objects.filter(job_id=job_id).count() for job_id in jobs] == [5] * 5


SAME_INSTANTS = """
INSERT INTO jobs_execution (id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state,
    attempt, tries_used, times_lost, rank, fired_at, ready_at)
SELECT uuidv7(), s.job_id, v.id, s.id, v.queue_id, 'backfill', uuidv7(), at, 'ready', 0, 0, 0, now(), now(), now()
  FROM jobs_schedule s JOIN jobs_jobversion v ON v.job_id = s.job_id,
       generate_series(%s::timestamptz, %s::timestamptz + interval '3 minutes', interval '1 minute') at
 WHERE s.job_id = ANY(%s)
"""


def test_backfills_waiting_for_a_lock_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step ends in time, and the next one begins after the backfills that it could not advance."""
    monkeypatch.setattr(backfilling, "_STEP_SECONDS", 0.5)
    start = datetime.now(UTC) - 10.5 * MINUTE
    stuck, free = [make_job() for _ in range(8)], make_job()
    for job in [*stuck, free]:
        add_schedule(job, Kind.EVERY, "60", created=start)
        request_backfill(job.id, from_at=start, to_at=start + 3 * MINUTE, by="test")
    with own_connection() as other:
        # An insert of the same instants waits for this transaction.
        other.execute("BEGIN")
        other.execute(SAME_INSTANTS, [start, start, [job.id for job in stuck]])
        # On a slow machine a step ends after one of them.
        for _ in [*stuck, free]:
            began = time.monotonic()
            advance_backfills()
            assert time.monotonic() - began < STEP_SECONDS
            if Execution.objects.filter(job=free).exists():
                break
        assert Execution.objects.filter(job=free).count() == 4
        assert not Execution.objects.filter(job__in=stuck).exists()
        other.execute("ROLLBACK")
    advance()
    assert Execution.objects.filter(job__in=stuck).count() == 4 * 8
