"""Query plans of many deliveries, and deliveries that cannot be built or whose host resolves slowly."""

from __future__ import annotations

import re
import threading
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection

from jobs.db import sql
from jobs.execution import transitions
from jobs.models import Execution, Webhook, WebhookDelivery
from jobs.notifications.webhooks import subscriptions
from jobs.notifications.webhooks.deliveries import Deliverer
from jobs.notifications.webhooks.pacing import DueDelivery
from jobs.notifications.webhooks.resolving import Resolver
from tests.support.factories import make_execution, make_job, make_user
from tests.support.waiting import wait_for
from tests.support.webhook_deliveries import make_webhook
from tests.support.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


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


def test_due_deliveries_are_found_by_the_index(owner: User, receiver: Receiver) -> None:
    webhooks = [make_webhook(owner, receiver.url, str(number)) for number in range(3)]
    for webhook in webhooks:
        fill(webhook, "delivered", 10_000)
    fill(webhooks[0], "pending", 10_000)
    fill(webhooks[2], "pending", 2)
    statement = sql.statement("find_due_deliveries")
    plan = plan_of(statement, {"each": 8, "limit": 256, "owners": [owner.pk], "on_the_way": [1]})
    assert "webhook_delivery_pending" in plan
    assert "Seq Scan on jobs_webhookdelivery" not in plan
    assert most_rows(plan) <= 40, plan
    plan = plan_of(sql.statement("lease_deliveries"), {"ids": [uuid4(), uuid4()], "lease_seconds": 60.0})
    assert "jobs_webhookdelivery_pkey" in plan
    assert "Seq Scan on jobs_webhookdelivery" not in plan


def test_limit_hides_no_owner_behind_the_backlog_of_another(owner: User, receiver: Receiver) -> None:
    for number in range(3):
        fill(make_webhook(owner, receiver.url, str(number)), "pending", 10)
    busy, late = make_user(), make_user()
    for each in (busy, late):
        fill(make_webhook(each, receiver.url), "pending", 1)
    parameters = {"each": 8, "limit": 2, "owners": [busy.pk], "on_the_way": [2]}
    found = sql.fetch("find_due_deliveries", parameters, DueDelivery)
    assert [due.owner_id for due in found] == [owner.pk, late.pk]


@pytest.mark.parametrize(("state", "index"), [(None, "webhook_delivery_list"), ("failed", "webhook_delivery_failed")])
def test_page_of_deliveries_reads_only_a_page_of_rows(
    owner: User, receiver: Receiver, state: str | None, index: str
) -> None:
    webhook = make_webhook(owner, receiver.url)
    fill(make_webhook(owner, receiver.url, "another"), "failed", 5000)
    fill(webhook, "delivered", 10_000)
    fill(webhook, "failed", 100)
    rows = WebhookDelivery.objects.filter(webhook=webhook, **({"state": state} if state else {})).order_by("-id")[:51]
    statement, parameters = rows.query.sql_with_params()
    plan = plan_of(statement, parameters)
    assert index in plan
    assert most_rows(plan) <= 51, plan


def test_delivery_that_cannot_be_built_does_not_delay_others(owner: User, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    job = make_job(owner=owner)
    broken, healthy = make_execution(job=job), make_execution(job=job)
    transitions.cancel([broken.id, healthy.id], by="me")
    Execution.objects.filter(id=broken.id).update(progress={"attempt": 0})
    deliverer = Deliverer()

    def are_tried() -> bool:
        deliverer.step()
        return not WebhookDelivery.objects.filter(tried_at__isnull=True).exists() and deliverer.in_flight == 0

    wait_for(are_tried, "both are tried")
    deliverer.settle()
    assert WebhookDelivery.objects.get(execution=healthy).state == "delivered"
    delivery = WebhookDelivery.objects.get(execution=broken)
    assert (delivery.state, delivery.attempts) == ("pending", 1)
    assert "Internal error" in delivery.error
    assert len(receiver.received) == 1


def test_slow_lookup_frees_its_place_after_the_timeout(owner: User, receiver: Receiver) -> None:
    subscriptions.ping_webhook(make_webhook(owner, receiver.url).id)
    WebhookDelivery.objects.update(tries_left=2)
    resolved = threading.Event()
    deliverer = Deliverer(resolve=Resolver(lambda *_: [str(resolved.wait(30))], seconds=0.1))
    deliverer.step()
    wait_for(lambda: deliverer.settle() == 1, "the try timed out", seconds=5)
    wait_for(lambda: not deliverer.in_flight, "the place is free", seconds=5)
    assert "looked up in time" in WebhookDelivery.objects.get().error
    resolved.set()


def test_hanging_delivery_times_out_but_keeps_its_place(owner: User, receiver: Receiver) -> None:
    subscriptions.ping_webhook(make_webhook(owner, receiver.url).id)
    WebhookDelivery.objects.update(tries_left=2)
    resolved = threading.Event()

    def resolve_late(*_: object) -> list[str]:
        resolved.wait(30)
        return ["127.0.0.1"]

    deliverer = Deliverer(resolve=resolve_late, total_seconds=0.1)
    deliverer.step()
    wait_for(lambda: deliverer.settle() == 1, "the try timed out", seconds=5)
    delivery = WebhookDelivery.objects.get()
    assert "no answer in time" in delivery.error
    assert (delivery.state, delivery.attempts, deliverer.in_flight) == ("pending", 1, 1)
    resolved.set()
    wait_for(lambda: not deliverer.in_flight, "the name is resolved")
    assert (deliverer.settle(), receiver.received) == (0, []), "it is neither sent nor recorded again"
