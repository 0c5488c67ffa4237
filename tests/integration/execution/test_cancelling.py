"""Cancelling a running execution wakes its worker, and no other, after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from django.conf import settings
from django.db import transaction

from jobs.db.wakeups import WakeupListener, best_effort_redis, worker_channel
from jobs.definitions import lifecycle
from jobs.domain.worker_protocol import Registration
from jobs.execution import transitions
from jobs.models import Execution
from jobs.scheduling.firing import fire_due_schedules
from tests.support.factories import claim_on, make_execution, make_job, make_schedule, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0


@pytest.fixture
def worker() -> Registration:
    return make_worker()


@pytest.fixture
def woken(worker: Registration) -> Iterator[Callable[[], bool]]:
    """Whether the worker was woken since the last call."""
    listener = WakeupListener(settings.PUNCTUAL_REDIS_URL, channel=worker_channel(worker.worker_id))
    listener.wait(0.01)
    best_effort_redis()._backoff_until = 0.0
    yield lambda: listener.wait(DEADLINE)
    listener.close()
    listener._redis.close()


def cancel_execution(execution: Execution) -> None:
    lifecycle.cancel_execution(execution.id, by="test")


def cancel_job(execution: Execution) -> None:
    lifecycle.cancel_job(execution.job_id, by="test")


def delete_job(execution: Execution) -> None:
    lifecycle.delete_job(execution.job_id, by="test")


def fire_again(execution: Execution) -> None:
    make_schedule(job=execution.job)
    assert fire_due_schedules().fired == 1


@pytest.mark.parametrize("prepare", [claim_on, run_on])
@pytest.mark.parametrize("cancel", [cancel_execution, cancel_job, delete_job, fire_again])
def test_cancelling_a_running_execution_wakes_its_worker(
    worker: Registration, woken: Callable[[], bool], prepare: Callable[..., object], cancel: Callable[..., None]
) -> None:
    execution = make_execution(job=make_job(overlap="cancel_running"))
    prepare(worker, execution)
    cancel(execution)
    assert woken()


def test_no_worker_is_woken_without_a_run_or_before_the_commit(worker: Registration) -> None:
    woken: list[UUID] = []
    execution, running = make_execution(), make_execution()
    place_on(worker, execution)
    run_on(worker, running)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.db.wakeups.wake_worker", woken.append)
        cancel_execution(execution)
        assert woken == []
        with transaction.atomic():
            transitions.cancel([running.id], by="test")
            assert woken == []
        assert woken == [worker.worker_id]
        cancel_execution(running)
        assert len(woken) == 1, "the cancel was requested already"
