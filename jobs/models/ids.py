"""Ids are UUIDv7: they sort by the time they were made, so inserts stay at the right edge of an index."""

from __future__ import annotations

from uuid import UUID

from uuid_utils import compat


def new_id() -> UUID:
    identifier: UUID = compat.uuid7()
    return identifier
