"""Ids are UUIDv7: they sort by the time they were made, so inserts stay at the right edge of an index."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from uuid_utils import compat


def new_id() -> UUID:
    identifier: UUID = compat.uuid7()
    return identifier


def first_id(at: datetime) -> UUID:
    """The least id that can be made at that time: everything made before has a lesser one."""
    return UUID(int=int(at.timestamp() * 1000) << 80)
