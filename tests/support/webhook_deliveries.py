"""Webhooks of tests, and their delivery as beat does it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from jobs.models import Webhook
from jobs.models.webhook import WEBHOOK_EVENTS
from jobs.notifications.webhooks.deliveries import Deliverer
from jobs.notifications.webhooks.subscriptions import create_webhook
from tests.support.waiting import wait_for


def make_webhook(owner: User, url: str, name: str = "hook", **fields: Any) -> Webhook:
    return create_webhook(owner=owner, name=name, url=url, **({"events": WEBHOOK_EVENTS} | fields))[0]


def deliver_all(deliverer: Deliverer | None = None) -> int:
    """Step until nothing is due and all results are stored; return how many were sent."""
    deliverer, sent = deliverer or Deliverer(), 0

    def is_quiet() -> bool:
        nonlocal sent
        in_flight = deliverer.in_flight
        done = deliverer.step()
        sent += done.sent
        return not (in_flight or done.sent or done.settled)

    wait_for(is_quiet, "all results are stored", seconds=20)
    return sent
