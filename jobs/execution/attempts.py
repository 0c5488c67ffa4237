"""Attempts as workers report them: claimed, started, finished. Every call passes the fence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

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
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, MovedExecution, RunReport
from jobs.execution import completion, status_cache, transitions
from jobs.execution.transitions import AttemptOutcome
from jobs.storage.outputs import MAX_ERROR_LENGTH, publish_outputs


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


def start_attempt(fence: AttemptFence, receipt: Mapping[str, object]) -> None:
    transitions.start(fence, receipt)


def finish_attempt(fence: AttemptFence, report: RunReport) -> MovedExecution:
    """Finish the attempt, publish its outputs if it succeeded, and run the follow-ups, all in one transaction."""
    moved = _try_finish_fast(fence, report) or _finish_with_follow_ups(fence, report)
    if moved.ended:
        wakeups.notify_capacity_freed()
    else:
        # A retry is due at its own time.
        wakeups.wake_beat()
    status_cache.notify_change(fence.execution_id)
    return moved


def _try_finish_fast(fence: AttemptFence, report: RunReport) -> MovedExecution | None:
    """Finish a success without outputs and follow-ups, as most are, in one statement that checks for follow-ups."""
    if report.reason is not Reason.EXIT or report.exit_code != 0 or report.outputs:
        return None
    return transitions.try_succeed(fence, _build_outcome(report, outcomes.SUCCESS))


def _finish_with_follow_ups(fence: AttemptFence, report: RunReport) -> MovedExecution:
    with transaction.atomic(), with_timeouts(statement_seconds=10):
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
