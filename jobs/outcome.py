"""What the end of an attempt makes of its execution: a pure decision."""

from __future__ import annotations

from dataclasses import dataclass

from jobs import conf
from jobs.retry_policy import Failure, RetryPolicy, decide
from jobs.states import Move, Reason


@dataclass(frozen=True, slots=True)
class Verdict:
    move: Move
    reason: Reason
    retry_seconds: float = 0
    burns_try: bool = True


SUCCESS = Verdict(Move.SUCCEED, Reason.EXIT)


def judge(  # noqa: PLR0911 - a table of cases reads best as one
    *,
    reason: Reason,
    exit_code: int | None,
    cancelled: bool,
    started: bool,
    tries_used: int,
    policy: RetryPolicy,
    repeatable: bool = True,
    attempt: int = 1,
    signal: int | None = None,
    seconds_left: float | None = None,
    seed: bytes = b"",
) -> Verdict:
    """`started`: the sandbox was up. A cancel that was asked for wins over however the attempt ended.

    `repeatable`: it may be started again after a worker has claimed it; under at_most_once it may not.
    `seconds_left`: until its deadline, past which no further try starts; None: it has none.
    """
    if cancelled or reason is Reason.CANCELLED:
        return Verdict(Move.CANCEL, Reason.CANCELLED)
    if reason is Reason.RELEASED and repeatable:
        return Verdict(Move.RELEASE, Reason.RELEASED, burns_try=False)
    if reason is Reason.EXIT and exit_code == 0:
        return SUCCESS
    if reason is Reason.ARTIFACT_UNAVAILABLE and repeatable and not started and attempt < conf.MAX_UNAVAILABLE_ATTEMPTS:
        # The program never ran: an outage of the object store uses up none of its tries.
        wait = min(conf.MAX_UNAVAILABLE_BACKOFF_SECONDS, 2.0 ** min(attempt, 10))
        if _in_time(wait, seconds_left):
            return Verdict(Move.RETRY, reason, retry_seconds=wait, burns_try=False)
    delay = decide(policy, tries_used=tries_used + 1, failure=Failure(reason, exit_code, signal), seed=seed)
    if delay is not None and repeatable and _in_time(delay.total_seconds(), seconds_left):
        return Verdict(Move.RETRY, reason, retry_seconds=delay.total_seconds())
    if reason is Reason.TIMEOUT and started:
        # Its worker gave it the lesser of the two times; the one that is over is the one that ended it.
        return Verdict(Move.TIME_OUT, reason if _in_time(0, seconds_left) else Reason.DEADLINE)
    return Verdict(Move.FAIL, reason)


def _in_time(wait: float, seconds_left: float | None) -> bool:
    return seconds_left is None or wait < seconds_left
