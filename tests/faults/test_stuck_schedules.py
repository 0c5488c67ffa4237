"""A real beat with a locked row or a long backlog: every other schedule fires on time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection

from jobs.models import Execution, Schedule
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.factories import make_job, make_schedule
from tests.support.stack import ROOT
from tests.support.stalls import watched_stalls
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

SCHEDULES = 60
PHASE = timedelta(seconds=15)
# Longer than the time after which beat counts an instant as missed.
LATEST_SECONDS = 2.0
BACKLOGGED = 300
BACKLOG = timedelta(days=30)


def database_url() -> str:
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    return urlunsplit(database)


@contextmanager
def running_beat() -> Iterator[None]:
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile=", "--loglevel=INFO"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        beat.terminate()
        try:
            beat.wait(30)
        finally:
            beat.kill()


@contextmanager
def locked_skip_job() -> Iterator[Schedule]:
    """Lock it as a forgotten psql session would."""
    job = make_job(overlap="skip", max_concurrency=1)
    at = datetime.now(UTC) + timedelta(seconds=2)
    stuck = make_schedule(job=job, expression="1", starts_at=at, next_instant=at)
    with psycopg.connect(database_url()) as psql:
        psql.execute("SELECT FROM jobs_job WHERE id = %s FOR UPDATE", [job.id])
        yield stuck
        assert not Execution.objects.filter(schedule=stuck).exists()
    wait_for(Execution.objects.filter(schedule=stuck).exists, "it fires once its job is free", seconds=10)


@contextmanager
def long_backlog() -> Iterator[Schedule]:
    """Make schedules that catch up with a month of minutes, one execution each."""
    begun = datetime.now(UTC) - BACKLOG
    job = make_job(max_concurrency=None, overlap="skip")
    behind = [
        make_schedule(job=job, expression="60", starts_at=begun, next_instant=begun, catch_up="all")
        for _ in range(BACKLOGGED)
    ]
    yield behind[0]
    reached = Schedule.objects.filter(id__in=[s.id for s in behind], next_instant__gt=begun).count()
    assert reached, "the backlog is caught up with meanwhile"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("trouble", [nullcontext, locked_skip_job, long_backlog])
def test_stuck_or_late_schedule_makes_no_other_late(
    engines: Engines, trouble: Callable[[], AbstractContextManager[object]]
) -> None:
    job = make_job(max_concurrency=None, overlap="skip")  # no worker runs it, and it always fires
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6)
    moments = [start + timedelta(seconds=n / SCHEDULES) for n in range(SCHEDULES)]
    others = [make_schedule(job=job, expression="1", starts_at=at, next_instant=at) for at in moments]
    with watched_stalls(database_url()) as stalls, running_beat(), trouble():
        wait_for(Execution.objects.filter(job=job).exists, "beat fires", seconds=30)
        began = datetime.now(UTC) + timedelta(seconds=1)
        wait_for(lambda: datetime.now(UTC) > began + PHASE, "the phase ends")
        wait_for(
            lambda: not Schedule.objects.filter(job=job, next_fire_at__lte=began + PHASE).exists(),
            "all of it is settled",
            seconds=20,
        )
        fired = Execution.objects.filter(schedule__in=others, scheduled_for__gt=began, scheduled_for__lte=began + PHASE)
        late = [(e.fired_at - e.scheduled_for).total_seconds() for e in fired if e.scheduled_for]
        missed = fired.exclude(state="ready").count()
    print(f"{len(late)} instants, at most {max(late):.3f} s late; the machine stood still for {stalls.seconds:.3f} s")
    assert len(late) == SCHEDULES * int(PHASE.total_seconds())
    assert missed == 0
    assert max(late) < LATEST_SECONDS + stalls.seconds
