"""Whoever cancels what runs wakes the worker that runs it, after the commit; nobody else is disturbed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from django.conf import settings
from django.db import transaction

from jobs.models import Execution
from jobs.protocol import Registration
from jobs.services import commands, transitions
from jobs.services.firing import fire_due_schedules
from jobs.wakeups import WakeListener, hurried_redis, worker_channel
from tests.factories import claim_on, make_execution, make_job, make_schedule, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0


@pytest.fixture
def worker() -> Registration:
    return make_worker()


@pytest.fixture
def woken(worker: Registration) -> Iterator[Callable[[], bool]]:
    """Whether somebody has woken the worker since it was asked last."""
    listener = WakeListener(settings.PUNCTUAL_REDIS_URL, channel=worker_channel(worker.worker_id))
    listener.wait(0.01)
    hurried_redis()._quiet_until = 0.0
    yield lambda: listener.wait(DEADLINE)
    listener.close()
    listener._redis.close()


def cancel_execution(execution: Execution) -> None:
    commands.cancel_execution(execution.id, by="test")


def cancel_job(execution: Execution) -> None:
    commands.cancel_job(execution.job_id, by="test")


def delete_job(execution: Execution) -> None:
    commands.delete_job(execution.job_id, by="test")


def fire_anew(execution: Execution) -> None:
    make_schedule(job=execution.job)
    assert fire_due_schedules().fired == 1


@pytest.mark.parametrize("prepare", [claim_on, run_on])
@pytest.mark.parametrize("cancel", [cancel_execution, cancel_job, delete_job, fire_anew])
def test_its_worker_is_woken(
    worker: Registration, woken: Callable[[], bool], prepare: Callable[..., object], cancel: Callable[..., None]
) -> None:
    execution = make_execution(job=make_job(overlap="cancel_running"))
    prepare(worker, execution)
    cancel(execution)
    assert woken()


def test_nobody_is_woken_for_what_nobody_runs_or_before_the_commit(worker: Registration) -> None:
    woken: list[UUID] = []
    execution, running = make_execution(), make_execution()
    place_on(worker, execution)
    run_on(worker, running)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.wakeups.wake_worker", woken.append)
        cancel_execution(execution)
        assert woken == []
        with transaction.atomic():
            transitions.cancel([running.id], by="test")
            assert woken == []
        assert woken == [worker.worker_id]
        cancel_execution(running)
        assert len(woken) == 1, "it knows already"
