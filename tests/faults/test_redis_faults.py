"""A real beat while Redis is healthy, wiped, killed, frozen or slow: no instant is late or missing."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from django.conf import settings
from django.db import connection, transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from rest_framework.test import APIClient

from jobs.access.tokens import generate_secret, store_token
from jobs.db import due_window
from jobs.models import Execution, Queue, Schedule
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.factories import make_job, make_schedule, make_user
from tests.support.stack import ROOT
from tests.support.stalls import watched_stalls
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

SCHEDULES = 20
PHASE = timedelta(seconds=8)
# The promise of the documentation, whatever happens to Redis.
LATEST_SECONDS = 1.0
REQUESTS = 10


@pytest.fixture
def schedules() -> list[Schedule]:
    """Make schedules that fire every second at different fractions; no worker runs the executions."""
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    job = make_job(max_concurrency=None)
    return [
        make_schedule(job=job, expression="1", starts_at=moment, next_instant=moment)
        for moment in (start + timedelta(seconds=n / SCHEDULES) for n in range(SCHEDULES))
    ]


@pytest.fixture
def beat(engines: Engines, schedules: list[Schedule]) -> Iterator[subprocess.Popen[bytes]]:
    # Sending this task needs Redis every second: firing must not wait for it.
    interval, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
    PeriodicTask.objects.create(name="every second", task="jobs.create_partitions", interval=interval)
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile=", "--loglevel=INFO"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(Execution.objects.exists, "beat fires", seconds=30)
        yield beat
    finally:
        beat.terminate()
        beat.wait(30)


def database_url() -> str:
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    return urlunsplit(database)


def refill() -> None:
    with transaction.atomic():
        due_window.refill_window()


@contextmanager
def healthy(engines: Engines) -> Iterator[Callable[[], object]]:
    yield lambda: None


@contextmanager
def wiped(engines: Engines) -> Iterator[Callable[[], object]]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        yield client.flushall


@contextmanager
def killed(engines: Engines) -> Iterator[Callable[[], object]]:
    engines.valkey.kill()
    try:
        yield lambda: None
    finally:
        engines.valkey.start()


@contextmanager
def frozen(engines: Engines) -> Iterator[Callable[[], object]]:
    os.kill(engines.valkey.pid, signal.SIGSTOP)
    try:
        yield lambda: None
    finally:
        os.kill(engines.valkey.pid, signal.SIGCONT)


@contextmanager
def slow(engines: Engines) -> Iterator[Callable[[], object]]:
    """Delay responses repeatedly by up to 300 ms."""
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        yield lambda: client.execute_command("CLIENT", "PAUSE", "300", "ALL")
        client.execute_command("CLIENT", "UNPAUSE")


FAULTS = {"healthy": healthy, "wiped": wiped, "killed": killed, "frozen": frozen, "slow": slow}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_instant_is_a_second_late(
    engines: Engines, schedules: list[Schedule], beat: subprocess.Popen[bytes], fault: str
) -> None:
    refill()
    with watched_stalls(database_url()) as stalls, FAULTS[fault](engines) as again:
        began = database_now()
        end = began + PHASE

        def passed() -> bool:
            again()
            return Execution.objects.filter(scheduled_for__gt=end + timedelta(seconds=1)).exists()

        wait_for(passed, f"beat fires while Redis is {fault}", seconds=60)
    lateness = sorted(
        (fired_at - scheduled_for).total_seconds()
        for fired_at, scheduled_for in Execution.objects.filter(
            scheduled_for__gt=began, scheduled_for__lte=end, state="ready"
        ).values_list("fired_at", "scheduled_for")
    )
    print(f"{fault}: {len(lateness)} fired, {describe(lateness)}, the machine stood still for {stalls.seconds:.3f} s")
    assert len(lateness) == SCHEDULES * PHASE.total_seconds()
    assert lateness[0] >= 0
    assert lateness[-1] < LATEST_SECONDS + stalls.seconds, describe(lateness)
    assert beat.poll() is None


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_request_is_not_delayed(engines: Engines, bucket: None, fault: str) -> None:
    Queue.objects.get_or_create(name="default")
    secret = generate_secret()
    store_token(owner=make_user(), name="test", secret=secret)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    usual = [submit(client) for _ in range(REQUESTS)]
    with FAULTS[fault](engines):
        faulty = [submit(client) for _ in range(REQUESTS)]
    print(f"{fault}: usually {describe(sorted(usual))}; then {describe(sorted(faulty))}")
    assert statistics.median(faulty) < statistics.median(usual) * 2 + 0.05
    assert max(faulty) < max(usual) + LATEST_SECONDS / 2


def submit(client: APIClient) -> float:
    body = {"name": "soon", "runtime": "bash", "script": "true", "schedules": [{"every_seconds": 60}]}
    began = time.monotonic()
    answer = client.post("/api/v1/jobs", body, format="json")
    assert answer.status_code == 201, answer.content
    return time.monotonic() - began


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def describe(lateness: list[float]) -> str:
    at = [lateness[int(len(lateness) * share)] * 1000 for share in (0.5, 0.99)]
    return f"p50 {at[0]:.1f} ms, p99 {at[1]:.1f} ms, most {lateness[-1] * 1000:.1f} ms"
