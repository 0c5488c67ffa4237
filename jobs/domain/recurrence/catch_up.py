"""Catch-up and jitter: which due instants fire or are dropped, and when they fire.

Invariant: decisions depend only on their arguments, so an interrupted and resumed firing decides the same.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from jobs.domain.recurrence.bounds import EARLIEST, RESOLUTION


class CatchUp(StrEnum):
    """Which of the instants that passed during downtime fire."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CatchUpDecision:
    """A due instant that fires or is dropped."""

    instant: datetime
    fires: bool


def add_jitter(schedule_id: UUID, instant: datetime, jitter_seconds: float) -> datetime:
    """Return when to fire: deterministic for a schedule and an instant, in [instant, instant + jitter)."""
    spread = int(jitter_seconds * 1_000_000)
    if spread <= 0:
        return instant
    microseconds = (instant - EARLIEST) // RESOLUTION
    digest = hashlib.blake2b(schedule_id.bytes + microseconds.to_bytes(8, "big", signed=True), digest_size=8).digest()
    return instant + (int.from_bytes(digest, "big") * spread >> 64) * RESOLUTION


def find_drop_cutoff(
    *, now: datetime, policy: CatchUp, window_seconds: float | None, grace_seconds: float
) -> datetime | None:
    """Return the time before which `decide_catch_up` drops all instants except LATEST's newest; None: it drops none."""
    if policy is not CatchUp.ALL:
        return now - timedelta(seconds=grace_seconds)
    return None if window_seconds is None else now - timedelta(seconds=max(grace_seconds, window_seconds))


def decide_catch_up(
    instants: Sequence[datetime],
    *,
    now: datetime,
    more_due: bool,
    policy: CatchUp,
    window_seconds: float | None,
    grace_seconds: float,
) -> list[CatchUpDecision]:
    """Decide for each due instant, in ascending order, whether it fires or is dropped.

    1. An instant at most `grace_seconds` old fires, whatever policy and window: a busy beat is not downtime.
    2. Otherwise, one older than `window_seconds` is dropped (None: no window).
    3. Otherwise the policy decides. ALL: it fires. NONE: it is dropped. LATEST: only the newest due instant fires: the
       last of `instants`, unless `more_due` (further due instants follow).
    """
    newest = None if more_due or not instants else instants[-1]

    def fires(instant: datetime) -> bool:
        age = (now - instant).total_seconds()
        if age <= grace_seconds:
            return True
        if window_seconds is not None and age > window_seconds:
            return False
        return policy is CatchUp.ALL or (policy is CatchUp.LATEST and instant == newest)

    return [CatchUpDecision(instant, fires(instant)) for instant in instants]
