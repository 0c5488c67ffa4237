"""Finished executions are announced in their transaction and delivered at least once; failures are retried."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.domain import limits
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution import attempts, transitions
from jobs.execution.deadlines import expire_overdue
from jobs.execution.transitions import NewExecution
from jobs.housekeeping.history_retention import prune_history
from jobs.models import DeliveryState, Execution, Job, Trigger, Webhook, WebhookDelivery
from jobs.models.webhook import WEBHOOK_EVENTS
from jobs.notifications.webhooks import subscriptions
from jobs.notifications.webhooks.address_policy import AddressPolicy, parse_networks
from jobs.notifications.webhooks.deliveries import Deliverer
from jobs.notifications.webhooks.pacing import MAX_IN_FLIGHT_PER_HOST, MAX_TRIES
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.waiting import wait_for
from tests.support.webhook_deliveries import deliver_all
from tests.support.webhook_receiver import Handler, Received, Receiver, answer

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def job(owner: User) -> Job:
    return make_job(owner=owner, name="nightly")


def make_webhook(owner: User, url: str, **fields: Any) -> tuple[Webhook, str]:
    return subscriptions.create_webhook(
        owner=owner, **({"name": "hook", "url": url, "events": WEBHOOK_EVENTS} | fields)
    )


def finish(job: Job, *, exit_code: int = 0, result: object = None) -> Execution:
    """Finish an execution as a worker does."""
    execution = make_execution(job=job)
    fence = run_on(make_worker(), execution)
    attempts.finish_attempt(fence, RunReport(Reason.EXIT, exit_code=exit_code, result=result))
    execution.refresh_from_db()
    return execution


def make_many(job: Job, count: int) -> list[UUID]:
    return transitions.create_executions([NewExecution(job.id, Trigger.MANUAL)] * count)


def make_due() -> None:
    WebhookDelivery.objects.update(next_try_at=datetime.now(UTC) - timedelta(seconds=1))


def verified(received: Received, secret: str) -> bool:
    content = b".".join(
        [received.headers["webhook-id"].encode(), received.headers["webhook-timestamp"].encode(), received.body]
    )
    digest = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), content, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return signature in received.headers["webhook-signature"].split(" ")


def test_receiver_gets_the_execution_as_the_api_shows_it(owner: User, job: Job, receiver: Receiver) -> None:
    webhook, secret = make_webhook(owner, receiver.url)
    execution = finish(job, result={"rows": 5})
    deliver_all()
    (received,) = receiver.received
    assert verified(received, secret)
    assert abs(int(received.headers["webhook-timestamp"]) - time.time()) < 30
    delivery = WebhookDelivery.objects.get()
    assert received.headers["webhook-id"] == str(delivery.id)
    assert received.headers["content-type"] == "application/json"
    event = json.loads(received.body)
    assert (event["type"], event["data"]["job"]) == ("execution.succeeded", {"id": str(job.id), "name": "nightly"})
    client = APIClient()
    client.force_authenticate(owner)
    shown = client.get(f"/api/v1/executions/{execution.id}").json()
    assert event["data"]["execution"] == shown
    assert event["timestamp"] == shown["ended_at"]
    assert (delivery.state, delivery.attempts, delivery.status_code) == (DeliveryState.DELIVERED, 1, 200)
    assert (delivery.response, delivery.error) == ("thanks", "")
    assert delivery.ended_at is not None
    assert delivery.webhook == webhook


def test_retried_attempt_is_not_announced(owner: User, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    execution = finish(make_job(owner=owner, retry={"max_attempts": 2, "backoff_seconds": 60}), exit_code=1)
    assert execution.state == State.BACKING_OFF
    assert not WebhookDelivery.objects.exists()


def test_every_terminal_state_is_announced_once(owner: User, job: Job, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    finish(job)
    finish(job, exit_code=1)
    transitions.cancel([make_execution(job=job).id], by="me")
    make_execution(job=job, state=State.MISSED)
    transitions.skip([make_execution(job=job, state=State.BLOCKED).id])
    late = make_execution(job=make_job(owner=owner, deadline_seconds=1))
    Execution.objects.filter(id=late.id).update(deadline_at=late.fired_at)
    assert expire_overdue() == 1
    announced = sorted(WebhookDelivery.objects.values_list("event", flat=True))
    assert announced == sorted(f"execution.{state}" for state in WEBHOOK_EVENTS)
    Execution.objects.filter(ended_at__isnull=False).update(exit_code=3)
    assert WebhookDelivery.objects.count() == len(WEBHOOK_EVENTS), "later changes are not announced"


def test_only_subscribed_events_are_announced(owner: User, job: Job, receiver: Receiver) -> None:
    other = make_job(owner=owner, name="other")
    make_webhook(owner, receiver.url, name="failures", events=["failed"])
    make_webhook(owner, receiver.url, name="of-one", job_id=other.id)
    make_webhook(make_user(), receiver.url, name="of-a-stranger")
    disabled, _ = make_webhook(owner, receiver.url, name="disabled")
    subscriptions.edit_webhook(disabled.id, enabled=False)
    finish(job)
    finish(other)
    finish(other, exit_code=1)
    announced = sorted(WebhookDelivery.objects.values_list("webhook__name", "event"))
    assert announced == [
        ("failures", "execution.failed"),
        ("of-one", "execution.failed"),
        ("of-one", "execution.succeeded"),
    ]


def test_rolled_back_finish_is_not_announced(owner: User, job: Job, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    fence = run_on(make_worker(), make_execution(job=job))
    with transaction.atomic():
        attempts.finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))
        assert WebhookDelivery.objects.count() == 1
        transaction.set_rollback(True)
    assert not WebhookDelivery.objects.exists()


def test_number_of_statements_is_independent_of_the_batch_size(owner: User, job: Job, receiver: Receiver) -> None:
    def cost(count: int) -> int:
        ids = make_many(job, count)
        with CaptureQueriesContext(connection) as finishing:
            transitions.cancel(ids, by="me")
        with CaptureQueriesContext(connection) as sending:
            deliverer = Deliverer()
            deliverer.step()
            wait_for(lambda: not deliverer.in_flight, "all are answered")
            deliverer.settle()
        WebhookDelivery.objects.all().delete()
        return len(finishing) * 1000 + len(sending)

    without = cost(1)
    make_webhook(owner, receiver.url)
    one, many = cost(1), cost(1000)
    assert one == many
    assert without // 1000 == one // 1000, "a webhook adds no statement to finishing"


def test_many_finished_executions_are_all_delivered(owner: User, job: Job, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    ids = make_many(job, 300)
    transitions.cancel(ids, by="me")
    deliver_all()
    announced = [json.loads(received.body)["data"]["execution"]["id"] for received in receiver.received]
    assert sorted(announced) == sorted(map(str, ids))


def test_failed_delivery_is_retried_under_the_same_id(owner: User, job: Job, receiver: Receiver) -> None:
    webhook, secret = make_webhook(owner, receiver.url)
    receiver.answers = [answer(500, b"oops"), answer(302, location="http://127.0.0.1:1/")]
    finish(job)
    began = datetime.now(UTC)
    deliver_all()
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.attempts, delivery.tries_left) == (DeliveryState.PENDING, 1, MAX_TRIES - 1)
    assert (delivery.status_code, delivery.error, delivery.response) == (500, "The answer was 500.", "oops")
    assert timedelta(seconds=7) < delivery.next_try_at - began < timedelta(seconds=20)
    webhook.refresh_from_db()
    assert webhook.failing_since is not None
    make_due()
    deliver_all()
    delivery.refresh_from_db()
    assert "redirects are not followed" in delivery.error
    assert timedelta(seconds=20) < delivery.next_try_at - began < timedelta(seconds=60)
    make_due()
    deliver_all()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 3)
    assert len({received.headers["webhook-id"] for received in receiver.received}) == 1
    assert len({received.body for received in receiver.received}) == 1
    assert all(verified(received, secret) for received in receiver.received)
    webhook.refresh_from_db()
    assert webhook.failing_since is None


def test_delivery_fails_after_its_last_try(owner: User, job: Job, receiver: Receiver) -> None:
    webhook, _ = make_webhook(owner, receiver.url)
    receiver.behave = answer(503)
    finish(job)
    for _ in range(MAX_TRIES + 2):
        deliver_all()
        make_due()
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.attempts) == (DeliveryState.FAILED, MAX_TRIES)
    assert len(receiver.received) == MAX_TRIES
    webhook.refresh_from_db()
    assert webhook.enabled, "failing for a day does not disable it"
    receiver.behave = answer(204)
    subscriptions.redeliver(delivery.id)
    deliver_all()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, delivery.status_code) == (DeliveryState.DELIVERED, MAX_TRIES + 1, 204)


def test_webhook_failing_for_three_days_is_disabled(owner: User, job: Job, receiver: Receiver) -> None:
    webhook, _ = make_webhook(owner, receiver.url)
    receiver.behave = answer(500)
    finish(job)
    deliver_all()
    Webhook.objects.update(
        failing_since=datetime.now(UTC) - timedelta(seconds=limits.WEBHOOK_DISABLE_AFTER_SECONDS + 60)
    )
    make_due()
    deliver_all()
    webhook.refresh_from_db()
    assert webhook.enabled, "it may recover while there are tries left"
    WebhookDelivery.objects.update(tries_left=1)
    make_due()
    deliver_all()
    webhook.refresh_from_db()
    assert (webhook.enabled, webhook.disabled_reason) == (False, "Nothing could be delivered for three days.")
    finish(job)
    assert WebhookDelivery.objects.count() == 1, "nothing more is announced to it"


def test_webhook_answering_gone_is_disabled_at_once(owner: User, job: Job, receiver: Receiver) -> None:
    webhook, _ = make_webhook(owner, receiver.url)
    first = finish(job)
    receiver.answers = [answer(410)]
    deliver_all()
    webhook.refresh_from_db()
    assert (webhook.enabled, webhook.disabled_reason) == (False, "The receiver answered 410 Gone.")
    assert WebhookDelivery.objects.get().state == DeliveryState.FAILED
    subscriptions.edit_webhook(webhook.id, enabled=True)
    second = finish(job)
    subscriptions.edit_webhook(webhook.id, enabled=False)
    deliver_all()
    waiting = WebhookDelivery.objects.get(execution=second)
    assert (waiting.state, waiting.error) == (DeliveryState.FAILED, "The webhook is disabled.")
    assert len(receiver.received) == 1
    assert first != second


def test_delivery_is_sent_again_if_the_sender_dies_before_storing_the_response(
    owner: User, job: Job, receiver: Receiver
) -> None:
    make_webhook(owner, receiver.url)
    finish(job)
    dying = Deliverer()
    dying.step()
    wait_for(lambda: not dying.in_flight, "it is answered, but the response is not stored")
    deliver_all()
    assert len(receiver.received) == 1, "the lease of the first has not ended"
    make_due()
    deliver_all()
    assert len({received.headers["webhook-id"] for received in receiver.received}) == 1
    assert len(receiver.received) == 2
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.attempts) == (DeliveryState.DELIVERED, 2)
    receiver.behave = answer(500)
    subscriptions.redeliver(delivery.id)
    assert dying.settle() == 1
    delivery.refresh_from_db()
    assert delivery.state == DeliveryState.PENDING, "a result of an earlier try is ignored"


def test_slow_receiver_does_not_delay_others(owner: User, receiver: Receiver) -> None:
    def hang(handler: Handler, _: Received) -> None:
        handler.rfile.read(1)

    with Receiver(behave=hang) as slow:
        # Different names, since both are on one machine; the slow host uses all its capacity.
        slow_job, quick_job = make_job(owner=owner, name="slow"), make_job(owner=owner, name="quick")
        make_webhook(owner, f"http://localhost:{slow.port}/", name="slow", job_id=slow_job.id)
        make_webhook(owner, receiver.url, name="quick", job_id=quick_job.id)
        transitions.cancel([make_execution(job=slow_job).id for _ in range(MAX_IN_FLIGHT_PER_HOST * 3)], by="me")
        deliverer = Deliverer(resolve=lambda *_: ["127.0.0.1"])
        deliverer.step()
        wait_for(lambda: len(slow.received) == MAX_IN_FLIGHT_PER_HOST, "the slow host is at its limit")
        transitions.cancel([make_execution(job=quick_job).id for _ in range(5)], by="me")
        quick = WebhookDelivery.objects.filter(webhook__name="quick", state=DeliveryState.DELIVERED)
        wait_for(lambda: deliverer.step() and quick.count() == 5, "the others are delivered", seconds=5)
        assert len(slow.received) == MAX_IN_FLIGHT_PER_HOST
        assert deliverer.in_flight == MAX_IN_FLIGHT_PER_HOST


def test_former_secret_signs_too_for_a_day_after_a_rotation(owner: User, job: Job, receiver: Receiver) -> None:
    webhook, former = make_webhook(owner, receiver.url)
    secret = subscriptions.rotate_webhook_secret(webhook.id)
    finish(job)
    deliver_all()
    assert verified(receiver.received[0], former)
    assert verified(receiver.received[0], secret)
    Webhook.objects.update(previous_until=datetime.now(UTC) - timedelta(seconds=1))
    finish(job)
    deliver_all()
    assert not verified(receiver.received[1], former)
    assert verified(receiver.received[1], secret)


def test_delivery_that_cannot_be_signed_is_not_sent(
    owner: User, job: Job, receiver: Receiver, settings: Settings
) -> None:
    make_webhook(owner, receiver.url)
    finish(job)
    keys, settings.PUNCTUAL_SECRETS_KEYS = settings.PUNCTUAL_SECRETS_KEYS, "k" * 40
    deliver_all()
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, receiver.received) == (DeliveryState.PENDING, [])
    assert "add it to PUNCTUAL_SECRETS_KEYS" in delivery.error
    settings.PUNCTUAL_SECRETS_KEYS = keys
    make_due()
    deliver_all()
    assert len(receiver.received) == 1


def test_signing_secrets_are_resealed(owner: User, settings: Settings, receiver: Receiver, job: Job) -> None:
    webhook, former = make_webhook(owner, receiver.url)
    secret = subscriptions.rotate_webhook_secret(webhook.id)
    settings.PUNCTUAL_SECRETS_KEYS = f"{'n' * 40},{settings.PUNCTUAL_SECRETS_KEYS}"
    call_command("reseal_secrets")
    settings.PUNCTUAL_SECRETS_KEYS = "n" * 40
    webhook.refresh_from_db()
    assert subscriptions.open_signing_keys(webhook, at=datetime.now(UTC)) == [secret, former]


def test_stricter_address_policy_applies_to_existing_webhooks(
    owner: User, job: Job, receiver: Receiver, settings: Settings
) -> None:
    make_webhook(owner, receiver.url)
    finish(job)
    settings.PUNCTUAL_WEBHOOK_REACH = AddressPolicy(parse_networks(["127.0.0.0/8"]))
    deliver_all()
    assert "https://" in WebhookDelivery.objects.get().error
    settings.PUNCTUAL_WEBHOOK_REACH = AddressPolicy(http=True)
    make_due()
    deliver_all()
    assert "public internet" in WebhookDelivery.objects.get().error
    assert receiver.received == []


def test_deliveries_are_pruned_with_their_executions(owner: User, job: Job, receiver: Receiver) -> None:
    make_webhook(owner, receiver.url)
    finish(job)
    finish(job)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE jobs_execution SET ended_at = now() - interval '9 days', scheduled_for = now() - interval '9 days'"
        )
    prune_history(retention=timedelta(days=-1))
    assert not WebhookDelivery.objects.exists()
