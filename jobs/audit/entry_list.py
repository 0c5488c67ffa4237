"""Lists audit entries by filters.

Every filter has an index. A page scans one of them and checks the other filters row by row: two filters that are common
separately but never match together would otherwise read the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from jobs.db.keyset import IdSource, Listing, Order, OrderedRows
from jobs.models import AuditEntry
from jobs.models.ids import MAX_CLOCK_SKEW, shifted_first_id
from jobs.models.visibility import find_user_id, is_operator

ORDERING = "-created"
ORDER = Order(("id",), descending=True)


@dataclass(frozen=True, slots=True)
class AuditFilters:
    actor: str | None = None
    action: str | None = None
    object_type: str | None = None
    object_id: str | None = None
    owner: str | None = None
    first: datetime | None = None
    last: datetime | None = None


def list_entries(user: User, filters: AuditFilters) -> Listing:
    """List the entries visible to the user: staff see all, others the entries of their own objects."""
    bounds, times = _build_time_bounds(filters)
    rows = AuditEntry.objects.filter(**bounds)
    owner_id = None if is_operator(user) else user.pk
    if filters.owner is not None:
        named = find_user_id(filters.owner)
        if owner_id not in (None, named):
            rows = rows.none()
        owner_id = named if owner_id is None else owner_id
    # The first filter's index is scanned: the most selective one. For other users it is their own entries, since the
    # time that a scan of foreign entries takes would reveal how many there are.
    columns = {
        "object_id": filters.object_id,
        "actor_name": filters.actor,
        "action": filters.action,
        "owner_id": owner_id,
        "object_type": filters.object_type,
    }
    filtered = [(column, value) for column, value in columns.items() if value is not None]
    if not is_operator(user):
        filtered.sort(key=lambda each: each[0] != "owner_id")
    scanned, rest = dict(filtered[:1]), dict(filtered[1:])
    return Listing(
        match=AuditEntry.objects.filter(**scanned, **rest, **times),
        order=ORDER,
        walk=OrderedRows(rows.filter(**scanned), ORDER.fields),
        filtered=bool(rest or times),
        sources=_build_sources(rows, rest, sees_all=is_operator(user)),
    )


def _build_sources(rows: QuerySet[AuditEntry], rest: dict[str, Any], *, sees_all: bool) -> list[IdSource]:
    if sees_all:
        return [IdSource(((rows.filter(**{column: value}), "id"),)) for column, value in rest.items()]
    # All entries of one object or none: a page that ended among foreign entries would reveal how many there are.
    return [IdSource(((rows.filter(object_id=rest["object_id"]), "id"),), ordered=False)] if "object_id" in rest else []


def _build_time_bounds(filters: AuditFilters) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return bounds of the ids, which limit the scan, and of the times themselves."""
    bounds: dict[str, Any] = {}
    times: dict[str, Any] = {}
    if filters.first is not None:
        bounds["id__gte"], times["at__gte"] = shifted_first_id(filters.first, -MAX_CLOCK_SKEW), filters.first
    if filters.last is not None:
        bounds["id__lt"], times["at__lte"] = shifted_first_id(filters.last, MAX_CLOCK_SKEW), filters.last
    return bounds, times
