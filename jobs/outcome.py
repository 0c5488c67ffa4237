"""What the end of an attempt makes of its execution: a pure decision."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.retry_policy import RetryPolicy, decide
from jobs.states import Move, Reason


@dataclass(frozen=True, slots=True)
class Verdict:
    move: Move
    reason: Reason
    retry_seconds: float = 0
    burns_try: bool = True


def judge(
    *,
    reason: Reason,
    exit_code: int | None,
    cancelled: bool,
    started: bool,
    tries_used: int,
    policy: RetryPolicy,
    repeatable: bool = True,
) -> Verdict:
    """`started`: the sandbox was up. A cancel that was asked for wins over however the attempt ended.

    `repeatable`: it may be started again after a worker has claimed it; under at_most_once it may not.
    """
    if cancelled or reason is Reason.CANCELLED:
        return Verdict(Move.CANCEL, Reason.CANCELLED)
    if reason is Reason.RELEASED and repeatable:
        return Verdict(Move.RELEASE, Reason.RELEASED, burns_try=False)
    if reason is Reason.EXIT and exit_code == 0:
        return Verdict(Move.SUCCEED, Reason.EXIT)
    delay = decide(policy, tries_used=tries_used + 1)
    if delay is not None and repeatable:
        return Verdict(Move.RETRY, reason, retry_seconds=delay.total_seconds())
    if reason is Reason.TIMEOUT and started:
        return Verdict(Move.TIME_OUT, reason)
    return Verdict(Move.FAIL, reason)
