"""What becomes of instants that are due: when they fire, and which are dropped.

Invariant: the decision depends only on the values given, so a walk that stops and resumes decides alike.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from jobs.recurrence.bounds import EARLIEST, RESOLUTION


class CatchUp(StrEnum):
    """What happens to instants that passed while nothing could fire them."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Settled:
    """A due instant and what becomes of it: it fires, or it is dropped."""

    instant: datetime
    fires: bool


def jittered(schedule_id: UUID, instant: datetime, jitter_seconds: float) -> datetime:
    """When to fire: for one schedule and instant always the same moment in [instant, instant + jitter)."""
    spread = int(jitter_seconds * 1_000_000)
    if spread <= 0:
        return instant
    microseconds = (instant - EARLIEST) // RESOLUTION
    digest = hashlib.blake2b(schedule_id.bytes + microseconds.to_bytes(8, "big", signed=True), digest_size=8).digest()
    return instant + (int.from_bytes(digest, "big") * spread >> 64) * RESOLUTION


def settle(
    instants: Sequence[datetime],
    *,
    now: datetime,
    more_due: bool,
    policy: CatchUp,
    window_seconds: float | None,
    grace_seconds: float,
) -> list[Settled]:
    """Decide for each due instant, in ascending order, whether it fires or is dropped.

    1. An instant at most `grace_seconds` old fires, whatever policy and window say: a busy beat is not
       downtime.
    2. Otherwise, one older than `window_seconds` is dropped (None: no window).
    3. Otherwise the policy decides. ALL: it fires. NONE: it is dropped. LATEST: it fires only if it is the
       newest due instant of all, that is, the last of `instants` and not `more_due` (no due instant follows
       beyond them).
    """
    newest = None if more_due or not instants else instants[-1]

    def fires(instant: datetime) -> bool:
        age = (now - instant).total_seconds()
        if age <= grace_seconds:
            return True
        if window_seconds is not None and age > window_seconds:
            return False
        return policy is CatchUp.ALL or (policy is CatchUp.LATEST and instant == newest)

    return [Settled(instant, fires(instant)) for instant in instants]
