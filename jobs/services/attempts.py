"""What a worker tells the control plane about an attempt: claimed, started, finished. Every call passes the fence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction

from jobs import outcome, sql, wakeups
from jobs.errors import StaleAttempt
from jobs.models import Delivery
from jobs.outcome import Verdict
from jobs.protocol import Claimed, Hold, Moved, Report
from jobs.retry_policy import parse_retry_policy
from jobs.services import endings, status_cache, transitions
from jobs.services.database import bounded
from jobs.services.outputs import MAX_ERROR_LENGTH, publish_outputs
from jobs.services.secret_grants import open_secrets
from jobs.services.transitions import Ending
from jobs.states import Move, Reason, State
from jobs.storable import storable_text


@dataclass(frozen=True, slots=True)
class _Held:
    state: str
    tries_used: int
    cancel_requested: bool
    retry: str
    delivery: str
    seconds_left: float | None


def claim_attempt(hold: Hold) -> Claimed:
    return open_secrets(transitions.claim(hold))


def start_attempt(hold: Hold, receipt: Mapping[str, object]) -> None:
    transitions.start(hold, receipt)


def finish_attempt(hold: Hold, report: Report) -> Moved:
    """Ends the attempt, publishes its outputs if it won, and resolves what depends on it: all of it or nothing."""
    moved = _finish_ordinary(hold, report) or _finish(hold, report)
    if moved.ended:
        wakeups.tell_of_room()
    else:
        # What is to be tried again is due at a time of its own.
        wakeups.wake_beat()
    status_cache.tell_change(hold.execution_id)
    return moved


def _finish_ordinary(hold: Hold, report: Report) -> Moved | None:
    """Most succeed, leave no files, and nobody waits for them: one statement, which makes sure of the last itself."""
    if report.reason is not Reason.EXIT or report.exit_code != 0 or report.outputs:
        return None
    return transitions.succeed_alone(hold, _ending(report, outcome.SUCCESS))


def _finish(hold: Hold, report: Report) -> Moved:
    with transaction.atomic(), bounded(statement_seconds=10):
        rows = sql.fetch("lock_held", hold.parameters(), _Held)
        if not rows:
            raise StaleAttempt
        held = rows[0]
        verdict = outcome.judge(
            reason=report.reason,
            exit_code=report.exit_code,
            cancelled=held.cancel_requested,
            started=held.state == State.RUNNING,
            tries_used=held.tries_used,
            policy=parse_retry_policy(json.loads(held.retry)),
            repeatable=held.delivery != Delivery.AT_MOST_ONCE,
            attempt=hold.attempt,
            signal=report.signal,
            seconds_left=held.seconds_left,
            seed=hold.execution_id.bytes,
        )
        moved = transitions.end(hold, _ending(report, verdict))
        endings.settle_endings([moved])
        if report.outputs and moved.state == State.SUCCEEDED:
            publish_outputs(hold, report.outputs)
    return moved


def _ending(report: Report, verdict: Verdict) -> Ending:
    return Ending(
        move=verdict.move,
        reason=verdict.reason,
        exit_code=report.exit_code,
        signal=report.signal,
        error=storable_text(report.error, MAX_ERROR_LENGTH),
        result=report.result if verdict.move is Move.SUCCEED else None,
        retry_seconds=verdict.retry_seconds,
        burns_try=verdict.burns_try,
        cpu_seconds=report.cpu_seconds,
        peak_memory_bytes=report.peak_memory_bytes,
        peak_disk_bytes=report.peak_disk_bytes,
        log_truncated=report.log_truncated,
    )
