"""Ids are UUIDv7: they sort by the time they were made, so inserts stay at the right edge of an index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils import compat

# Ids carry the clock of whoever made them, all else the database's.
CLOCKS_DIFFER = timedelta(hours=1)
# What an id can tell, and a day at either end for what is added or taken away.
_EARLIEST, _LATEST = datetime(1970, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)


def new_id() -> UUID:
    identifier: UUID = compat.uuid7()
    return identifier


def first_id(at: datetime) -> UUID:
    """The least id that can be made at that time: everything made before has a lesser one."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


def first_id_about(moment: datetime, shift: timedelta) -> UUID:
    """The least id of that moment and so much more or less; of one that no id can tell, of the nearest that it can."""
    return first_id(min(max(moment, _EARLIEST), _LATEST) + shift)
