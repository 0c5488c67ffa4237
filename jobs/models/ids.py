"""Ids: UUIDv7, which sort by creation time, so that inserts stay at the right edge of an index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils import compat

# Ids use the clock of the creating process, all other times the database's.
MAX_CLOCK_SKEW = timedelta(hours=1)
# The range of times that an id can encode, minus a day at either end for shifts.
_EARLIEST, _LATEST = datetime(1970, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)


def new_id() -> UUID:
    identifier: UUID = compat.uuid7()
    return identifier


def first_id(at: datetime) -> UUID:
    """Return the smallest id of that time; everything created before has a smaller one."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


def shifted_first_id(at: datetime, shift: timedelta) -> UUID:
    """Return the smallest id of the shifted time, clamped to the range that ids can encode."""
    return first_id(min(max(at, _EARLIEST), _LATEST) + shift)
