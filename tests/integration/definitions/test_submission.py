"""Submitting a job costs Postgres few statements and wakes beat only for work that is near."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.db.wakeups import BEAT_CHANNEL, WORK
from jobs.definitions.submission import prepare_jobs, store_jobs
from jobs.domain.job_spec import JobSpec, ScheduleSpec
from jobs.domain.recurrence import Kind
from jobs.models import Job, Schedule, ScheduleVersion
from tests.support.factories import make_user
from tests.support.waiting import eventually

DAY = timedelta(days=1)
SENTINEL = b"end"


@pytest.fixture
def owner(db: None, bucket: None) -> User:
    return make_user()


@pytest.fixture
def wakeups(settings: Settings) -> Iterator[redis.client.PubSub]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client, client.pubsub() as subscription:
        subscription.subscribe(BEAT_CHANNEL)
        assert eventually(lambda: subscription.get_message(timeout=0.1))
        yield subscription


def submit(owner: User, *schedules: ScheduleSpec) -> Job:
    spec = JobSpec(name="report", runtime="bash", script="echo report", schedules=list(schedules))
    (stored,) = store_jobs(prepare_jobs(owner=owner, specs=[spec]))
    return stored.job


def commit(owner: User, *schedules: ScheduleSpec) -> None:
    with TestCase.captureOnCommitCallbacks(execute=True):
        submit(owner, *schedules)


def at(moment: datetime) -> ScheduleSpec:
    return ScheduleSpec(Kind.AT, moment.isoformat())


def read_wakeups(subscription: redis.client.PubSub, settings: Settings) -> list[bytes]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.publish(BEAT_CHANNEL, SENTINEL)
    received: list[bytes] = []

    def is_complete() -> bool:
        message = subscription.get_message(timeout=0.1)
        received.extend([message["data"]] if message else [])
        return SENTINEL in received

    assert eventually(is_complete)
    return received[:-1]


def test_submission_with_a_stored_program_takes_few_statements(owner: User) -> None:
    schedule = ScheduleSpec(Kind.EVERY, "3600")
    submit(owner, schedule)
    with CaptureQueriesContext(connection) as queries:
        submit(owner, schedule)
    # Queue, program; begin, timeouts, quota, all rows, lock of the program, audit entry, commit.
    assert len(queries) <= 9, [query["sql"][:80] for query in queries]


@pytest.mark.parametrize("kind", [Kind.EVERY, Kind.DELAY])
def test_first_version_of_a_schedule_has_its_values(owner: User, kind: Kind) -> None:
    job = submit(owner, ScheduleSpec(kind, "3600", jitter_seconds=5, max_count=3))
    schedule, version = Schedule.objects.get(job=job), ScheduleVersion.objects.get(schedule__job=job)
    for name in ("kind", "expression", "timezone", "starts_at", "ends_at", "jitter_seconds", "excluded_dates"):
        assert getattr(version, name) == getattr(schedule, name), name
    assert (version.number, version.max_count, version.settled_before, version.paused) == (1, 3, 0, False)
    assert version.to_at is None
    assert schedule.next_instant is not None
    # An instant is in a version after its start, and a fixed delay fires at once.
    assert version.from_at < schedule.next_instant


def test_distant_schedule_wakes_no_beat(owner: User, wakeups: redis.client.PubSub, settings: Settings) -> None:
    commit(owner, at(datetime.now(UTC) + DAY))
    assert read_wakeups(wakeups, settings) == []


def test_near_schedule_and_immediate_job_wake_beat(
    owner: User, wakeups: redis.client.PubSub, settings: Settings
) -> None:
    commit(owner, at(datetime.now(UTC) + DAY), at(datetime.now(UTC) + timedelta(minutes=5)))
    assert read_wakeups(wakeups, settings) == [WORK]
    commit(owner)
    assert read_wakeups(wakeups, settings) == [WORK]
