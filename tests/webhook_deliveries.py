"""Delivering as beat does, until there is nothing more to do."""

from __future__ import annotations

from jobs.services.webhook_deliveries import Deliverer
from tests.waiting import wait_for


def deliver_all(deliverer: Deliverer | None = None) -> int:
    """Steps until nothing is due and everything that was sent is settled; how many were sent."""
    deliverer, sent = deliverer or Deliverer(), 0

    def is_quiet() -> bool:
        nonlocal sent
        on_the_way = deliverer.on_the_way
        done = deliverer.step()
        sent += done.sent
        return not (on_the_way or done.sent or done.settled)

    wait_for(is_quiet, "everything is settled", seconds=20)
    return sent
