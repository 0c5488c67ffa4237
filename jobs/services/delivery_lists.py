"""Which deliveries of a webhook are on a page of their list.

What failed has an index of its own, and what is pending is found at once if it is little. Else all are followed, and
those of the wanted state picked out: few that were delivered among many that failed would else be all read for a page.
"""

from __future__ import annotations

from django.db.models import QuerySet

from jobs.models import DeliveryState, WebhookDelivery
from jobs.querysets.walking import Listing, Order, Source, Walk

ORDERING = "-created"
ORDER = Order(("id",), descending=True)


def list_deliveries(rows: QuerySet[WebhookDelivery], state: str | None) -> Listing:
    """`rows` are those of one webhook."""
    match = rows if state is None else rows.filter(state=state)
    is_indexed = state in (None, DeliveryState.FAILED)
    pending = [Source(((match, "id"),), ordered=False)] if state == DeliveryState.PENDING else []
    return Listing(
        match=match,
        order=ORDER,
        walk=Walk(match if is_indexed else rows, ORDER.fields),
        filtered=not is_indexed,
        sources=pending,
    )
