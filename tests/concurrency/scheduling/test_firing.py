"""Several concurrent beats fire every instant exactly once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from jobs.dispatch import placement
from jobs.domain.states import State
from jobs.domain.worker_protocol import MovedExecution
from jobs.execution import transitions
from jobs.execution.dependents import resolve_dependents
from jobs.models import Dependency, Execution, Schedule, Trigger
from jobs.scheduling.firing import fire_due_schedules
from tests.support.barriers import at_once
from tests.support.factories import make_execution, make_job, make_schedule, make_worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_beats_share_due_schedules_and_duplicate_none() -> None:
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60)
    job = make_job()
    schedules = [
        make_schedule(
            job=job, expression="1", starts_at=start, next_instant=start + timedelta(seconds=1), catch_up="all"
        )
        for _ in range(40)
    ]

    def beat() -> None:
        # Small batches, so that the beats often compete for the same rows.
        while fire_due_schedules(limit=3).schedules:
            pass

    at_once([beat] * 4)
    for schedule in schedules:
        schedule.refresh_from_db()
        assert schedule.next_instant is not None
        fired = set(Execution.objects.filter(schedule=schedule).values_list("scheduled_for", flat=True))
        expected = int((schedule.next_instant - start).total_seconds()) - 1
        assert fired == {start + timedelta(seconds=n + 1) for n in range(expected)}
    assert Execution.objects.count() == sum(
        int((s.next_instant - start).total_seconds()) - 1 for s in Schedule.objects.all() if s.next_instant
    )


def test_concurrent_placement_respects_limits_and_capacity() -> None:
    worker = make_worker(slots=5)
    limited = make_job(max_concurrency=2)
    for _ in range(6):
        make_execution(job=limited)
    unlimited = make_job(max_concurrency=None)
    for _ in range(6):
        make_execution(job=unlimited)

    at_once([placement.place_ready_executions] * 4)

    active = Execution.objects.filter(state=State.QUEUED)
    assert active.count() == 5
    assert set(active.values_list("worker_id", flat=True)) == {worker.worker_id}
    assert Counter(active.values_list("job_id", flat=True))[limited.id] <= 2


@pytest.mark.parametrize("upstreams", [2, 6])
def test_upstreams_that_finish_concurrently_fire_their_dependent_once(upstreams: int) -> None:
    root, last = make_job(), make_job()
    ups = [make_job(owner=root.owner) for _ in range(upstreams)]
    for up in ups:
        Dependency.objects.create(job=up, upstream=root)
        Dependency.objects.create(job=last, upstream=up)
    run = make_execution(job=root)
    transitions.create_executions(
        [transitions.NewExecution(up.id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=run.id) for up in ups]
    )
    executions = list(Execution.objects.filter(job__in=ups))

    def finish(execution: Execution) -> None:
        with transaction.atomic():
            Execution.objects.filter(id=execution.id).update(state=State.SUCCEEDED, ended_at=datetime.now(UTC))
            resolve_dependents([MovedExecution(execution.id, execution.job_id, execution.run_id, State.SUCCEEDED)])

    at_once([lambda e=e: finish(e) for e in executions])  # type: ignore[misc]

    dependent = Execution.objects.get(job=last)
    assert dependent.state == State.READY
