"""Decides how the end of an attempt changes its execution; a pure function."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.domain import limits
from jobs.domain.retry_policy import Failure, RetryPolicy, decide_retry
from jobs.domain.states import Move, Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    move: Move
    reason: Reason
    retry_seconds: float = 0
    counts_as_try: bool = True


SUCCESS = Outcome(Move.SUCCEED, Reason.EXIT)


def decide_outcome(  # noqa: PLR0911 - a table of cases reads best as one
    *,
    reason: Reason,
    exit_code: int | None,
    cancelled: bool,
    started: bool,
    tries_used: int,
    policy: RetryPolicy,
    may_retry: bool = True,
    attempt: int = 1,
    signal: int | None = None,
    seconds_left: float | None = None,
    seed: bytes = b"",
) -> Outcome:
    """Return the move, the reason and the retry delay; a requested cancel wins over every outcome.

    `started`: the sandbox was up. `may_retry`: false under at_most_once delivery.
    `seconds_left`: until the deadline, after which no try starts; None: no deadline.
    """
    if cancelled or reason is Reason.CANCELLED:
        return Outcome(Move.CANCEL, Reason.CANCELLED)
    if reason is Reason.RELEASED and may_retry:
        return Outcome(Move.RELEASE, Reason.RELEASED, counts_as_try=False)
    if reason is Reason.EXIT and exit_code == 0:
        return SUCCESS
    if (
        reason is Reason.ARTIFACT_UNAVAILABLE
        and may_retry
        and not started
        and attempt < limits.MAX_UNAVAILABLE_ATTEMPTS
    ):
        # The program never ran: an outage of the object store uses up no tries.
        wait = min(limits.MAX_UNAVAILABLE_BACKOFF_SECONDS, 2.0 ** min(attempt, 10))
        if _is_before_deadline(wait, seconds_left):
            return Outcome(Move.RETRY, reason, retry_seconds=wait, counts_as_try=False)
    delay = decide_retry(policy, tries_used=tries_used + 1, failure=Failure(reason, exit_code, signal), seed=seed)
    if delay is not None and may_retry and _is_before_deadline(delay.total_seconds(), seconds_left):
        return Outcome(Move.RETRY, reason, retry_seconds=delay.total_seconds())
    if reason is Reason.TIMEOUT and started:
        # The worker enforced the smaller of timeout and remaining deadline; the one that has passed is the reason.
        return Outcome(Move.TIME_OUT, reason if _is_before_deadline(0, seconds_left) else Reason.DEADLINE)
    return Outcome(Move.FAIL, reason)


def _is_before_deadline(wait: float, seconds_left: float | None) -> bool:
    return seconds_left is None or wait < seconds_left
