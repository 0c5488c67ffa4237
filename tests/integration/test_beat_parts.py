"""The parts of beat's stages: none of them, failing, stops the others, and none asks Postgres more than it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs import beat
from jobs.beat import Scheduler
from jobs.models import Execution, Queue
from jobs.services import reaping, transitions
from scheduler_project.celery import app
from tests.factories import make_execution, make_job, make_schedule, make_worker, run_on, stamp_reaping

pytestmark = pytest.mark.django_db(transaction=True)

PARTS = ["reap_lost_workers", "sweep_blocked", "expire_overdue", "add_counts"]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(app=app)
    yield scheduler
    scheduler.close()
    scheduler._listener.close()


@pytest.mark.parametrize("failing", PARTS)
def test_a_part_of_reaping_that_fails_does_not_stop_the_others(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    done: list[str] = []

    def watched(name: str) -> None:
        part = getattr(beat, name)

        def call(*args: object, **options: object) -> object:
            if name == failing:
                raise RuntimeError(name)
            answer = part(*args, **options)
            done.append(name)
            return answer

        monkeypatch.setattr(beat, name, call)

    for name in PARTS:
        watched(name)
    scheduler._reap()
    assert done == [name for name in PARTS if name != failing]


def test_what_is_taken_back_is_placed_at_once_also_when_another_part_fails(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError

    run_on(make_worker(name="again"), make_execution())
    stamp_reaping()
    Execution.objects.update(incarnation=0)
    monkeypatch.setattr(beat, "sweep_blocked", fail)
    monkeypatch.setattr(beat, "expire_overdue", fail)
    scheduler._placing._wanted.clear()
    scheduler._reap()
    assert Execution.objects.get().state == "ready"
    assert scheduler._placing._wanted.is_set()
    assert reaping.reap_lost_workers() == reaping.ReapResult()


def test_what_was_fired_is_placed_while_retries_are_still_looked_for(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    def wake() -> int:
        told.append(scheduler._placing._wanted.is_set())
        return 0

    make_schedule()
    monkeypatch.setattr(transitions, "wake_backed_off", wake)
    scheduler._fire_and_look_ahead()
    assert told == [True]


def statements(scheduler: Scheduler) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        scheduler._place()
    return [query["sql"] for query in captured if query["sql"] not in {"BEGIN", "COMMIT"}]


def test_a_pass_without_work_is_two_statements_and_finds_a_new_pool_soon(
    scheduler: Scheduler, settings: Settings
) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 600.0
    Queue.objects.get_or_create(name="default")
    assert len(statements(scheduler)) == 3
    lock, read = statements(scheduler)
    assert "pg_try_advisory_xact_lock" in lock
    assert "FROM" not in lock, "nothing is read before the lock is had"
    assert "jobs_execution" in read
    make_worker(pool="far")
    make_execution(job=make_job(queue=Queue.objects.create(name="far", pool="far")))
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 0.0
    scheduler._next_pools = 0.0
    scheduler._place()
    assert Execution.objects.get().state == "queued"
