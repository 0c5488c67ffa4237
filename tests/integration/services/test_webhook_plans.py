"""Deliveries by the hundred thousand, and those among them that cannot be made or whose host is looked up for long."""

from __future__ import annotations

import re
import threading
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection

from jobs import sql
from jobs.models import Execution, Webhook, WebhookDelivery
from jobs.models.webhook import EVENTS
from jobs.services import transitions, webhooks
from jobs.services.webhook_deliveries import Deliverer
from jobs.webhooks.pacing import Due
from jobs.webhooks.resolving import Resolver
from tests.factories import make_execution, make_job, make_user
from tests.waiting import wait_for
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


def hook(owner: User, url: str, name: str = "hook") -> Webhook:
    return webhooks.create_webhook(owner=owner, name=name, url=url, events=EVENTS)[0]


def fill(webhook: Webhook, state: str, count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_webhookdelivery (id, webhook_id, event, state, attempts, tries_left, next_try_at, error,"
            " response, created_at, ended_at) SELECT gen_random_uuid(), %s, 'ping', %s, 0, 9, now(), '', '', now(),"
            " CASE WHEN %s <> 'pending' THEN now() END FROM generate_series(1, %s)",
            [webhook.id, state, state, count],
        )
        cursor.execute("ANALYZE jobs_webhookdelivery")


def plan_of(statement: str, parameters: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) " + statement, parameters)
        return "\n".join(line for (line,) in cursor.fetchall())


def most_rows(plan: str) -> int:
    return max(int(float(rows)) * int(loops) for rows, loops in re.findall(r"actual rows=([\d.]+) loops=(\d+)", plan))


def test_what_is_due_is_found_by_the_index_however_much_was_sent_or_waits(owner: User, receiver: Receiver) -> None:
    hooks = [hook(owner, receiver.url, str(number)) for number in range(3)]
    for webhook in hooks:
        fill(webhook, "delivered", 10_000)
    fill(hooks[0], "pending", 10_000)
    fill(hooks[2], "pending", 2)
    found = sql.statement("due_deliveries")
    plan = plan_of(found, {"each": 8, "limit": 256, "owners": [owner.pk], "on_the_way": [1]})
    assert "webhook_delivery_pending" in plan
    assert "Seq Scan on jobs_webhookdelivery" not in plan
    assert most_rows(plan) <= 40, plan
    taken = plan_of(sql.statement("take_deliveries"), {"ids": [uuid4(), uuid4()], "lease_seconds": 60.0})
    assert "jobs_webhookdelivery_pkey" in taken
    assert "Seq Scan on jobs_webhookdelivery" not in taken


def test_the_limit_hides_no_owner_behind_what_waits_for_another(owner: User, receiver: Receiver) -> None:
    for number in range(3):
        fill(hook(owner, receiver.url, str(number)), "pending", 10)
    busy, late = make_user(), make_user()
    for one in (busy, late):
        fill(hook(one, receiver.url), "pending", 1)
    wanted = {"each": 8, "limit": 2, "owners": [busy.pk], "on_the_way": [2]}
    found = sql.fetch("due_deliveries", wanted, Due)
    assert [due.owner_id for due in found] == [owner.pk, late.pk]


@pytest.mark.parametrize(("state", "index"), [(None, "webhook_delivery_list"), ("failed", "webhook_delivery_failed")])
def test_a_page_of_deliveries_reads_a_page(owner: User, receiver: Receiver, state: str | None, index: str) -> None:
    webhook = hook(owner, receiver.url)
    fill(hook(owner, receiver.url, "another"), "failed", 5000)
    fill(webhook, "delivered", 10_000)
    fill(webhook, "failed", 100)
    rows = WebhookDelivery.objects.filter(webhook=webhook, **({"state": state} if state else {})).order_by("-id")[:51]
    statement, parameters = rows.query.sql_with_params()
    plan = plan_of(statement, parameters)
    assert index in plan
    assert most_rows(plan) <= 51, plan


def test_one_that_cannot_be_made_does_not_hold_up_those_beside_it(owner: User, receiver: Receiver) -> None:
    hook(owner, receiver.url)
    job = make_job(owner=owner)
    broken, whole = make_execution(job=job), make_execution(job=job)
    transitions.cancel([broken.id, whole.id], by="me")
    Execution.objects.filter(id=broken.id).update(progress={"attempt": 0})
    deliverer = Deliverer()

    def is_settled() -> bool:
        deliverer.step()
        return not WebhookDelivery.objects.filter(tried_at__isnull=True).exists() and deliverer.on_the_way == 0

    wait_for(is_settled, "both are tried")
    deliverer.settle()
    assert WebhookDelivery.objects.get(execution=whole).state == "delivered"
    left = WebhookDelivery.objects.get(execution=broken)
    assert (left.state, left.attempts) == ("pending", 1)
    assert "on our side" in left.error
    assert len(receiver.received) == 1


def test_a_name_that_is_looked_up_for_long_keeps_no_place(owner: User, receiver: Receiver) -> None:
    webhooks.ping_webhook(hook(owner, receiver.url).id)
    WebhookDelivery.objects.update(tries_left=2)
    found = threading.Event()
    deliverer = Deliverer(resolve=Resolver(lambda *_: [str(found.wait(30))], seconds=0.1))
    deliverer.step()
    wait_for(lambda: deliverer.settle() == 1, "the try is over", seconds=5)
    wait_for(lambda: not deliverer.on_the_way, "the place is free", seconds=5)
    assert "looked up in time" in WebhookDelivery.objects.get().error
    found.set()


def test_one_that_hangs_ends_its_try_but_keeps_its_place(owner: User, receiver: Receiver) -> None:
    webhooks.ping_webhook(hook(owner, receiver.url).id)
    WebhookDelivery.objects.update(tries_left=2)
    found = threading.Event()

    def late(*_: object) -> list[str]:
        found.wait(30)
        return ["127.0.0.1"]

    deliverer = Deliverer(resolve=late, total_seconds=0.1)
    deliverer.step()
    wait_for(lambda: deliverer.settle() == 1, "the try is over", seconds=5)
    delivery = WebhookDelivery.objects.get()
    assert "no answer in time" in delivery.error
    assert (delivery.state, delivery.attempts, deliverer.on_the_way) == ("pending", 1, 1)
    found.set()
    wait_for(lambda: not deliverer.on_the_way, "the name is found")
    assert (deliverer.settle(), receiver.received) == (0, []), "it is neither sent nor settled again"
