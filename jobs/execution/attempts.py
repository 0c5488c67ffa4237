"""Attempts as workers report them: claimed, started, finished. Every call passes the fence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from jobs.access.secret_grants import open_secrets
from jobs.db import sql, wakeups
from jobs.db.transactions import with_timeouts
from jobs.domain import outcomes
from jobs.domain.choices import Delivery
from jobs.domain.errors import StaleAttempt
from jobs.domain.outcomes import Outcome
from jobs.domain.retry_policy import parse_retry_policy
from jobs.domain.states import Move, Reason, State
from jobs.domain.text_validation import to_storable_text
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, MovedExecution, RunReport, RunStart
from jobs.execution import completion, status_cache, transitions
from jobs.execution.transitions import AttemptOutcome, Success
from jobs.storage.outputs import MAX_ERROR_LENGTH, publish_outputs


@dataclass(frozen=True, slots=True)
class FinishedRun:
    fence: AttemptFence
    report: RunReport
    start: RunStart | None  # None: it is stored already, or the run never started


@dataclass(frozen=True, slots=True)
class _HeldAttempt:
    state: str
    tries_used: int
    cancel_requested: bool
    retry: str
    delivery: str
    seconds_left: float | None


def claim_attempt(fence: AttemptFence) -> ClaimedRun:
    return open_secrets(transitions.claim(fence))


def start_attempt(fence: AttemptFence, receipt: Mapping[str, object], *, seconds_ago: float = 0.0) -> None:
    transitions.start(fence, receipt, seconds_ago=seconds_ago)


def finish_attempt(fence: AttemptFence, report: RunReport, start: RunStart | None = None) -> MovedExecution:
    """Finish the attempt, publish its outputs if it succeeded, and run the follow-ups, all in one transaction.

    `start`: that of the run, unless it is stored already.
    """
    finished = FinishedRun(fence, report, start)
    moved = finish_at_once([finished])
    return moved[0] if moved else finish_with_follow_ups(finished)


def claim_at_once(fences: Sequence[AttemptFence]) -> list[ClaimedRun]:
    """Claim in one statement those that need no wait for another transaction."""
    return [open_secrets(run) for run in transitions.claim_unlocked(fences)] if fences else []


def start_at_once(starts: Mapping[AttemptFence, RunStart]) -> list[UUID]:
    return transitions.start_unlocked(starts)


def finish_at_once(finished: Sequence[FinishedRun]) -> list[MovedExecution]:
    """Finish in one statement those that need no wait and no follow-ups; it checks that."""
    successes = [
        Success(each.fence, _build_outcome(each.report, outcomes.SUCCESS), each.start)
        for each in finished
        if is_plain_success(each.report)
    ]
    moved = transitions.succeed_unlocked(successes) if successes else []
    status_cache.notify_change(*(each.execution_id for each in moved), frees_capacity=True)
    return moved


def finish_with_follow_ups(finished: FinishedRun) -> MovedExecution:
    moved = _finish_with_follow_ups(finished)
    if not moved.ended:
        # A retry is due at its own time.
        wakeups.wake_beat()
    status_cache.notify_change(finished.fence.execution_id, frees_capacity=moved.ended)
    return moved


def is_plain_success(report: RunReport) -> bool:
    return report.reason is Reason.EXIT and report.exit_code == 0 and not report.outputs


def _finish_with_follow_ups(finished: FinishedRun) -> MovedExecution:
    fence, report = finished.fence, finished.report
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        if finished.start is not None:
            transitions.start(fence, finished.start.receipt, seconds_ago=finished.start.seconds_ago)
        rows = sql.fetch("lock_held_attempt", fence.parameters(), _HeldAttempt)
        if not rows:
            raise StaleAttempt
        held = rows[0]
        outcome = outcomes.decide_outcome(
            reason=report.reason,
            exit_code=report.exit_code,
            cancelled=held.cancel_requested,
            started=held.state == State.RUNNING,
            tries_used=held.tries_used,
            policy=parse_retry_policy(json.loads(held.retry)),
            may_retry=held.delivery != Delivery.AT_MOST_ONCE,
            attempt=fence.attempt,
            signal=report.signal,
            seconds_left=held.seconds_left,
            seed=fence.execution_id.bytes,
        )
        moved = transitions.finish(fence, _build_outcome(report, outcome))
        completion.on_finished([moved])
        if report.outputs and moved.state == State.SUCCEEDED:
            publish_outputs(fence, report.outputs)
    return moved


def _build_outcome(report: RunReport, outcome: Outcome) -> AttemptOutcome:
    return AttemptOutcome(
        move=outcome.move,
        reason=outcome.reason,
        exit_code=report.exit_code,
        signal=report.signal,
        error=to_storable_text(report.error, MAX_ERROR_LENGTH),
        result=report.result if outcome.move is Move.SUCCEED else None,
        retry_seconds=outcome.retry_seconds,
        counts_as_try=outcome.counts_as_try,
        cpu_seconds=report.cpu_seconds,
        peak_memory_bytes=report.peak_memory_bytes,
        peak_disk_bytes=report.peak_disk_bytes,
        log_truncated=report.log_truncated,
    )
