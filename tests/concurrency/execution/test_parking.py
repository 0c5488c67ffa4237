"""Parking under concurrent changes: limits hold, and no execution is left waiting."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from django.db.models import QuerySet

from jobs.definitions.editing import edit_job
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.errors import StaleAttempt
from jobs.domain.job_edit import JobEdit
from jobs.domain.states import ACTIVE, TERMINAL, Reason, State, sorted_values
from jobs.domain.worker_protocol import AttemptFence, RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.completion import on_finished
from jobs.execution.parking import ParkingSweepResult, sweep_parked
from jobs.execution.transitions import NewExecution, create_executions
from jobs.models import Execution, OwnerQuota, Trigger
from tests.support.barriers import at_once
from tests.support.factories import make_job, make_user, make_worker
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

LIMITS = (1, 2, 3)
EACH = 25
OWNER_MOST = 4


def test_limits_hold_and_lines_empty_under_concurrent_changes() -> None:
    make_worker()
    owner = make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=OWNER_MOST)
    jobs = [make_job(max_concurrency=limit) for limit in LIMITS] + [make_job(owner=owner, max_concurrency=None)]
    for job in jobs:
        create_executions([NewExecution(job.id, Trigger.MANUAL)] * EACH)
    over = threading.Event()
    exceeded: list[str] = []

    def beat() -> None:
        swept = ParkingSweepResult()
        while not over.is_set():
            place_ready_executions(limit=5, scan_limit=20)
            swept = sweep_parked(after=swept.after, limit=2)

    def watch() -> None:
        most = dict(zip([job.id for job in jobs], [*LIMITS, OWNER_MOST], strict=True))
        while not over.is_set():
            active = Counter(Execution.objects.filter(state__in=sorted_values(ACTIVE)).values_list("job_id", flat=True))
            exceeded.extend(f"{count} of {most[job_id]}" for job_id, count in active.items() if count > most[job_id])

    def finish() -> None:
        while not over.is_set():
            for execution in Execution.objects.filter(state=State.QUEUED)[:20]:
                if execution.worker_id is None or execution.incarnation is None:
                    continue
                hold = AttemptFence(execution.id, execution.attempt, execution.worker_id, execution.incarnation)
                try:
                    transitions.claim(hold)
                    transitions.start(hold, {})
                    finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
                except StaleAttempt:
                    continue  # it was cancelled

    def cancel() -> None:
        while not over.is_set():
            waiting = Execution.objects.filter(state=State.READY).order_by("rank").values_list("id", flat=True)
            on_finished(transitions.cancel(waiting[:1], by="test"))
            over.wait(0.2)

    def edit() -> None:
        """Lower and restore each limit repeatedly; then all lines must become empty."""
        try:
            for number in range(30):
                job, limit = jobs[number % len(LIMITS)], LIMITS[number % len(LIMITS)]
                edit_job(job.id, JobEdit(max_concurrency=limit if number // len(LIMITS) % 2 else 1))
            assert eventually(lambda: not unfinished().exists(), seconds=50), list(unfinished().values())
        finally:
            over.set()

    at_once([beat, beat, beat, finish, finish, cancel, watch, edit])
    assert not exceeded
    assert Execution.objects.filter(state=State.SUCCEEDED).count() > EACH


def unfinished() -> QuerySet[Execution]:
    return Execution.objects.exclude(state__in=sorted_values(TERMINAL))
