"""Webhooks while others do the same, or take away what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from jobs import conf, sql
from jobs.errors import Conflict
from jobs.models import Execution, Trigger, Webhook, WebhookDelivery
from jobs.models.webhook import EVENTS
from jobs.protocol import Report
from jobs.services import attempts, transitions, webhooks
from jobs.services.transitions import NewExecution
from jobs.states import Reason, State
from tests.concurrency.connections import at_once, beside
from tests.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.webhook_deliveries import deliver_all
from tests.webhook_receiver import Receiver


@dataclass(frozen=True)
class Taken:
    id: UUID


pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner() -> User:
    return make_user()


def hook(owner: User, url: str, name: str = "hook") -> Webhook:
    return webhooks.create_webhook(owner=owner, name=name, url=url, events=EVENTS)[0]


def test_two_who_deliver_at_once_send_nothing_twice(owner: User, receiver: Receiver) -> None:
    hook(owner, receiver.url)
    count = 40
    ids = transitions.create_executions([NewExecution(make_job(owner=owner).id, Trigger.MANUAL)] * count)
    transitions.cancel(ids, by="me")

    sent = at_once([deliver_all] * 3)
    assert sum(sent) == count == len(receiver.received)
    assert len({received.headers["webhook-id"] for received in receiver.received}) == count
    assert WebhookDelivery.objects.filter(state="delivered", attempts=1).count() == count


def test_what_somebody_takes_at_this_moment_is_neither_taken_nor_waited_for(owner: User, receiver: Receiver) -> None:
    delivery_id = webhooks.ping_webhook(hook(owner, receiver.url).id).id

    def take() -> list[Taken]:
        return sql.fetch("take_deliveries", {"ids": [delivery_id], "lease_seconds": 60}, Taken)

    first: list[Taken] = []
    told: list[str] = []

    def take_as_well() -> list[Taken]:
        second = take()
        told.append("the second has its answer")
        return second

    second = beside(lambda: first.extend(take()), take_as_well, then=lambda: told.append("the first commits"))
    assert (first, second) == ([Taken(delivery_id)], [])
    assert told == ["the second has its answer", "the first commits"]


def test_an_execution_ends_although_its_webhook_is_deleted_meanwhile(owner: User, receiver: Receiver) -> None:
    webhook = hook(owner, receiver.url)
    execution = make_execution(job=make_job(owner=owner))
    hold = run_on(make_worker(), execution)

    def end() -> None:
        attempts.finish_attempt(hold, Report(Reason.EXIT, exit_code=0))

    # Enabled still, as for one who looked before the deletion had begun.
    beside(lambda: Webhook.objects.select_for_update().get(id=webhook.id).delete(), end)
    assert Execution.objects.get(id=execution.id).state == State.SUCCEEDED
    assert not WebhookDelivery.objects.exists()


def test_a_webhook_is_deleted_although_an_execution_ends_meanwhile(owner: User, receiver: Receiver) -> None:
    webhook = hook(owner, receiver.url)
    execution = make_execution(job=make_job(owner=owner))
    beside(
        lambda: transitions.cancel([execution.id], by="me"),
        lambda: webhooks.delete_webhook(webhook.id),
    )
    assert Execution.objects.get(id=execution.id).state == State.CANCELLED
    assert not Webhook.objects.exists()
    assert not WebhookDelivery.objects.exists()


def test_an_edit_does_not_hold_up_the_end_of_executions(owner: User, receiver: Receiver) -> None:
    webhook = hook(owner, receiver.url)
    execution = make_execution(job=make_job(owner=owner))
    waited: list[bool] = []

    def end() -> None:
        transitions.cancel([execution.id], by="me")
        waited.append(False)

    beside(lambda: webhooks.edit_webhook(webhook.id, enabled=False), end, then=lambda: waited.append(True))
    assert waited == [False, True]


def test_no_two_find_room_for_the_last_webhook(owner: User, receiver: Receiver) -> None:
    for number in range(conf.MAX_WEBHOOKS_PER_OWNER - 1):
        hook(owner, receiver.url, str(number))

    def make(name: str) -> bool:
        try:
            hook(owner, receiver.url, name)
        except Conflict:
            return False
        return True

    assert sum(at_once([lambda: make("a"), lambda: make("b")])) == 1
    assert Webhook.objects.count() == conf.MAX_WEBHOOKS_PER_OWNER
