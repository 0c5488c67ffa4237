"""Real beat and workers: a killed worker whose run cannot be finished delays nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction

from jobs.models import Dependency, Execution, FanOut, JobVersion, Schedule, Worker
from tests.faults.test_frozen_worker import (
    FOREVER,
    Start,
    execution_of,
    start,
    start_beat_and_workers,
    submit,
    wait_until_it_writes,
)
from tests.integration.execution.test_dependencies_large import make_graph
from tests.support.own_connection import own_connection
from tests.support.waiting import wait_for

__all__ = ["start", "submit"]
pytestmark = pytest.mark.django_db(transaction=True)

LEASE = 6.0
WORDS = ("--without-mingle", "--without-gossip", "--loglevel=INFO")
# More dependents than one transaction resolves.
DEPENDENTS = 5_000


def delay_of(job_id: str, expression: str) -> Schedule:
    """A fixed delay that the job's only execution arms when it finishes."""
    delay = Schedule.objects.create(
        job_id=job_id, kind="delay", expression=expression, starts_at=datetime.now(UTC), next_instant=None
    )
    Execution.objects.filter(job_id=job_id).update(schedule_id=delay.id)
    return delay


@contextmanager
def delay_that_cannot_be_parsed(job_id: str) -> Iterator[Callable[[], bool]]:
    """Store an expression that validation would refuse."""
    delay = delay_of(job_id, "nonsense")
    yield lambda: Schedule.objects.get(id=delay.id).quarantined_at is not None


@contextmanager
def schedule_locked_elsewhere(job_id: str) -> Iterator[Callable[[], bool]]:
    """Lock it as a forgotten psql session would."""
    delay = delay_of(job_id, "3600")
    with own_connection() as psql:
        psql.execute("SELECT FROM jobs_schedule WHERE id = %s FOR UPDATE", [delay.id])
        yield lambda: Schedule.objects.get(id=delay.id).next_instant is None
    wait_for(lambda: Schedule.objects.get(id=delay.id).next_instant, "the delay was armed once it was free")


@contextmanager
def many_dependents(job_id: str) -> Iterator[Callable[[], bool]]:
    with transaction.atomic():
        ids = make_graph([], DEPENDENTS)
        Dependency.objects.bulk_create(Dependency(job_id=each, upstream_id=job_id, condition="success") for each in ids)
    skipped = Execution.objects.filter(job_id__in=ids, state="skipped")
    yield lambda: skipped.count() == DEPENDENTS and not FanOut.objects.exists()


@pytest.mark.parametrize("poison", [delay_that_cannot_be_parsed, schedule_locked_elsewhere, many_dependents])
def test_executions_of_other_dead_workers_move_past_a_poisoned_completion(
    start: Start, submit: Callable[..., Any], poison: Callable[[str], Any]
) -> None:
    workers = start_beat_and_workers(start, LEASE, "poisoned")
    poisoned_job = submit("poisoned", FOREVER)
    poisoned = wait_until_it_writes(poisoned_job)
    JobVersion.objects.filter(job_id=poisoned_job).update(delivery="at_most_once")
    # The worker is full, so the next execution goes elsewhere.
    Worker.objects.filter(name="poisoned").update(slots=1)
    workers["healthy"] = start("worker", "healthy", LEASE, "-n", "healthy@%h", *WORDS)
    healthy_job = submit("healthy", FOREVER)
    assert wait_until_it_writes(healthy_job).worker_id != poisoned.worker_id

    with poison(poisoned_job) as aftermath:
        for worker in workers.values():
            worker.process.kill()
        wait_for(
            lambda: execution_of(healthy_job).state == "ready", "the other worker's work was taken back", seconds=60
        )
        wait_for(lambda: execution_of(poisoned_job).state == "failed", "the poisoned execution fails", seconds=30)
        start("worker", "poisoned", LEASE, "-n", "poisoned@%h", *WORDS)
        wait_for(
            lambda: Worker.objects.filter(name="poisoned", status="online", incarnation=2).exists(),
            "the dead worker has registered again",
            seconds=60,
        )
        wait_for(lambda: execution_of(healthy_job).state == "succeeded", "the other work has run", seconds=60)
        wait_for(aftermath, "the follow-ups of the poisoned execution", seconds=60)
