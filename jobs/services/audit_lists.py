"""Which entries of the audit are on a page of the list.

Every filter has an index of its own. One is followed, and what it meets is checked for the others: two of which each
is common, but never both, would else read all that there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from jobs.models import AuditEntry
from jobs.models.ids import CLOCKS_DIFFER, first_id_about
from jobs.querysets.visibility import id_of_user
from jobs.querysets.walking import Listing, Order, Source, Walk

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
    """Who is not staff changes only what is theirs, or nobody's, which then counts as theirs."""
    bounds, times = _in_time(filters)
    rows = AuditEntry.objects.filter(**bounds)
    owner_id = None if user.is_staff else user.pk
    if filters.owner is not None:
        named = id_of_user(filters.owner)
        if owner_id not in (None, named):
            rows = rows.none()
        owner_id = named if owner_id is None else owner_id
    # The first is followed: what there is the fewest of, but for who is not staff their own, as what is passed tells by
    # its length how much there is.
    columns = {
        "object_id": filters.object_id,
        "actor_name": filters.actor,
        "action": filters.action,
        "owner_id": owner_id,
        "object_type": filters.object_type,
    }
    wanted = [(column, value) for column, value in columns.items() if value is not None]
    if not user.is_staff:
        wanted.sort(key=lambda each: each[0] != "owner_id")
    walked, rest = dict(wanted[:1]), dict(wanted[1:])
    return Listing(
        match=AuditEntry.objects.filter(**walked, **rest, **times),
        order=ORDER,
        walk=Walk(rows.filter(**walked), ORDER.fields),
        filtered=bool(rest or times),
        sources=_sources(rows, rest, everybody=user.is_staff),
    )


def _sources(rows: QuerySet[AuditEntry], rest: dict[str, Any], *, everybody: bool) -> list[Source]:
    if everybody:
        return [Source(((rows.filter(**{column: value}), "id"),)) for column, value in rest.items()]
    # Of one thing, all or none: a page that ended among another's entries would tell that there are many.
    return [Source(((rows.filter(object_id=rest["object_id"]), "id"),), ordered=False)] if "object_id" in rest else []


def _in_time(filters: AuditFilters) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of ids, which the walk is bounded by, and of the moments themselves."""
    bounds: dict[str, Any] = {}
    times: dict[str, Any] = {}
    if filters.first is not None:
        bounds["id__gte"], times["at__gte"] = first_id_about(filters.first, -CLOCKS_DIFFER), filters.first
    if filters.last is not None:
        bounds["id__lt"], times["at__lte"] = first_id_about(filters.last, CLOCKS_DIFFER), filters.last
    return bounds, times
