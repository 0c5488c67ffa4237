"""Pages of the list of a webhook's deliveries.

Failed deliveries have an index, and pending ones are found by id while they are few. Otherwise the list walks all
deliveries in order and filters them: a few delivered among many failed ones would else be read completely for a page.
"""

from __future__ import annotations

from django.db.models import QuerySet

from jobs.db.keyset import IdSource, Listing, Order, OrderedRows
from jobs.models import DeliveryState, WebhookDelivery

ORDERING = "-created"
ORDER = Order(("id",), descending=True)


def list_deliveries(rows: QuerySet[WebhookDelivery], state: str | None) -> Listing:
    """Return the list of `rows`, the deliveries of one webhook."""
    match = rows if state is None else rows.filter(state=state)
    is_indexed = state in (None, DeliveryState.FAILED)
    pending = [IdSource(((match, "id"),), ordered=False)] if state == DeliveryState.PENDING else []
    return Listing(
        match=match,
        order=ORDER,
        walk=OrderedRows(match if is_indexed else rows, ORDER.fields),
        filtered=not is_indexed,
        sources=pending,
    )
