"""Concurrent redrives, retries, dismissals and expiries: exactly one succeeds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from jobs.domain.errors import Conflict, StaleAttempt
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, RunReport
from jobs.execution.attempts import claim_attempt, finish_attempt
from jobs.execution.dead_letters import dismiss_dead_letter
from jobs.execution.deadlines import expire_overdue
from jobs.execution.manual_retries import redrive_dead_letter, retry_execution
from jobs.models import Execution, ExecutionEvent
from tests.support.barriers import at_once
from tests.support.factories import make_execution, make_job, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 5


def dead_letter() -> Execution:
    execution = make_execution()
    finish_attempt(run_on(make_worker(), execution), RunReport(Reason.EXIT, exit_code=3))
    return execution


def won(call: Callable[..., object], letter: Execution) -> Callable[[], bool]:
    def attempt() -> bool:
        try:
            call(letter.id, by="test")
        except Conflict:
            return False
        return True

    return attempt


def test_concurrent_redrives_and_retries_create_one_execution() -> None:
    for _ in range(ROUNDS):
        letter = dead_letter()
        calls = [won(redrive_dead_letter, letter), won(retry_execution, letter)] * 3
        assert sum(at_once(calls)) == 1
        assert Execution.objects.filter(retry_of=letter.id).count() == 1
        assert ExecutionEvent.objects.filter(execution_id=letter.id).count() == 1
        letter.refresh_from_db()
        assert letter.dead_letter == "redriven"


def test_dead_letter_is_redriven_or_dismissed_never_both() -> None:
    for _ in range(ROUNDS):
        letter = dead_letter()
        redriven, dismissed = at_once([won(redrive_dead_letter, letter), won(dismiss_dead_letter, letter)])
        assert redriven != dismissed
        letter.refresh_from_db()
        assert letter.dead_letter == ("redriven" if redriven else "dismissed")
        assert Execution.objects.filter(retry_of=letter.id).exists() == redriven


def claimed(hold: AttemptFence) -> Callable[[], int]:
    def claim() -> int:
        with pytest.raises(StaleAttempt):
            claim_attempt(hold)
        return 0

    return claim


def test_overdue_execution_expires_once_and_is_not_claimed() -> None:
    worker, job = make_worker(), make_job(deadline_seconds=100, max_concurrency=None)
    for _ in range(ROUNDS):
        execution = make_execution(job=job)
        claim = claimed(place_on(worker, execution))
        Execution.objects.filter(id=execution.id).update(deadline_at=datetime.now(UTC) - timedelta(seconds=1))
        assert sum(at_once([expire_overdue, expire_overdue, claim])) == 1
        execution.refresh_from_db()
        assert (execution.state, execution.reason) == ("timed_out", "deadline")
