"""Workers that advance backfills at once, beside beats that fire the same schedules, create every instant once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs import conf
from jobs.models import Backfill, Execution
from jobs.recurrence import CatchUp, Kind
from jobs.services import schedules
from jobs.services.backfilling import advance_backfills, request_backfill
from jobs.services.firing import fire_due_schedules
from jobs.services.job_spec import ScheduleSpec
from tests.concurrency.connections import at_once
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
DEADLINE = timedelta(seconds=30)


def advance() -> None:
    deadline = datetime.now(UTC) + DEADLINE
    while Backfill.objects.exclude(state="done").exists():
        advance_backfills()
        assert datetime.now(UTC) < deadline, "the backfills do not end"


def test_workers_and_beats_together_create_every_instant_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_BATCH_INSTANTS", 7)
    monkeypatch.setattr(conf, "BACKFILL_MAX_WAITING", 10_000)
    monkeypatch.setattr(conf, "FIRE_BATCH_INSTANTS_EACH", 5)
    now = datetime.now(UTC)
    start = now - 60.5 * MINUTE
    job = make_job(max_concurrency=None)
    planned = [
        schedules.plan_schedule(n, ScheduleSpec(Kind.EVERY, "60", catch_up=CatchUp.ALL), start) for n in range(3)
    ]
    schedules.create_schedules(job, planned, start)
    backfills = [
        request_backfill(job.id, from_at=start, to_at=start + 40 * MINUTE, by="one"),
        request_backfill(job.id, from_at=start + 20 * MINUTE, to_at=now, by="two"),
    ]

    def beat() -> None:
        while fire_due_schedules(limit=1).schedules:
            pass

    at_once([advance, advance, beat, beat])

    for schedule in planned:
        found = Execution.objects.filter(schedule=schedule).order_by("scheduled_for")
        assert list(found.values_list("scheduled_for", flat=True)) == [start + n * MINUTE for n in range(61)]
    counted = 0
    for backfill in backfills:
        backfill.refresh_from_db()
        counted += backfill.created_count
    assert counted == Execution.objects.filter(trigger="backfill").count()


def test_workers_at_once_keep_the_limit_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "BACKFILL_MAX_WAITING", 5)
    start = datetime.now(UTC) - 600 * MINUTE
    for _ in range(5):
        job = make_job()
        planned = schedules.plan_schedule(0, ScheduleSpec(Kind.EVERY, "60"), start)
        schedules.create_schedules(job, [planned], start)
        for n in range(4):
            at = start + n * 100 * MINUTE
            request_backfill(job.id, from_at=at, to_at=at + 99 * MINUTE, by="test")

    at_once([advance_backfills] * 4)
    advance_backfills()

    jobs = set(Backfill.objects.values_list("job_id", flat=True))
    assert [Execution.objects.filter(job_id=job_id).count() for job_id in jobs] == [5] * 5
