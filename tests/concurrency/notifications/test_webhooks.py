"""Concurrent deliveries, edits and deletions of webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from jobs.db import sql
from jobs.domain import limits
from jobs.domain.errors import Conflict
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution import attempts, transitions
from jobs.execution.transitions import NewExecution
from jobs.models import Execution, Trigger, Webhook, WebhookDelivery
from jobs.notifications.webhooks import subscriptions
from tests.support.barriers import at_once, beside
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.webhook_deliveries import deliver_all, make_webhook
from tests.support.webhook_receiver import Receiver


@dataclass(frozen=True)
class Leased:
    id: UUID


pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner() -> User:
    return make_user()


def test_concurrent_deliverers_send_nothing_twice(owner: User, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    count = 40
    ids = transitions.create_executions([NewExecution(make_job(owner=owner).id, Trigger.MANUAL)] * count)
    transitions.cancel(ids, by="me")

    sent = at_once([deliver_all] * 3)
    assert sum(sent) == count == len(receiver.received)
    assert len({received.headers["webhook-id"] for received in receiver.received}) == count
    assert WebhookDelivery.objects.filter(state="delivered", attempts=1).count() == count


def test_locked_delivery_is_skipped(owner: User, receiver: Receiver) -> None:
    delivery_id = subscriptions.ping_webhook(make_webhook(owner, receiver.url).id).id

    def lease() -> list[Leased]:
        return sql.fetch("lease_deliveries", {"ids": [delivery_id], "lease_seconds": 60}, Leased)

    first: list[Leased] = []
    events: list[str] = []

    def lease_too() -> list[Leased]:
        second = lease()
        events.append("the second returns")
        return second

    second = beside(lambda: first.extend(lease()), lease_too, then=lambda: events.append("the first commits"))
    assert (first, second) == ([Leased(delivery_id)], [])
    assert events == ["the second returns", "the first commits"]


def test_execution_finishes_although_its_webhook_is_being_deleted(owner: User, receiver: Receiver) -> None:
    webhook = make_webhook(owner, receiver.url)
    execution = make_execution(job=make_job(owner=owner))
    fence = run_on(make_worker(), execution)

    def finish() -> None:
        attempts.finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))

    # Still enabled, as if read before the deletion began.
    beside(lambda: Webhook.objects.select_for_update().get(id=webhook.id).delete(), finish)
    assert Execution.objects.get(id=execution.id).state == State.SUCCEEDED
    assert not WebhookDelivery.objects.exists()


def test_webhook_is_deleted_although_an_execution_finishes(owner: User, receiver: Receiver) -> None:
    webhook = make_webhook(owner, receiver.url)
    execution = make_execution(job=make_job(owner=owner))
    beside(
        lambda: transitions.cancel([execution.id], by="me"),
        lambda: subscriptions.delete_webhook(webhook.id),
    )
    assert Execution.objects.get(id=execution.id).state == State.CANCELLED
    assert not Webhook.objects.exists()
    assert not WebhookDelivery.objects.exists()


def test_webhook_edit_does_not_delay_finishing_executions(owner: User, receiver: Receiver) -> None:
    webhook = make_webhook(owner, receiver.url)
    execution = make_execution(job=make_job(owner=owner))
    waited: list[bool] = []

    def finish() -> None:
        transitions.cancel([execution.id], by="me")
        waited.append(False)

    beside(lambda: subscriptions.edit_webhook(webhook.id, enabled=False), finish, then=lambda: waited.append(True))
    assert waited == [False, True]


def test_webhook_quota_holds_for_concurrent_creations(owner: User, receiver: Receiver) -> None:
    for number in range(limits.MAX_WEBHOOKS_PER_OWNER - 1):
        make_webhook(owner, receiver.url, str(number))

    def make(name: str) -> bool:
        try:
            make_webhook(owner, receiver.url, name)
        except Conflict:
            return False
        return True

    assert sum(at_once([lambda: make("a"), lambda: make("b")])) == 1
    assert Webhook.objects.count() == limits.MAX_WEBHOOKS_PER_OWNER
