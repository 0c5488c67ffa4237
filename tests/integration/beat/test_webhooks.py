"""Beat delivers webhooks when executions finish."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from pytest_django import Settings

from jobs.beat.scheduler import Scheduler
from jobs.db import wakeups
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution import attempts
from jobs.models import WebhookDelivery
from jobs.models.webhook import WEBHOOK_EVENTS
from jobs.notifications.webhooks import subscriptions
from jobs.notifications.webhooks.address_policy import AddressPolicy, parse_networks
from scheduler_project.celery import app
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.waiting import wait_for
from tests.support.webhook_receiver import Receiver

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def _beat(settings: Settings) -> Iterator[None]:
    settings.PUNCTUAL_WEBHOOK_REACH = AddressPolicy(parse_networks(["127.0.0.0/8"]), http=True)
    # So long that only a wake-up explains an earlier delivery.
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 20
    scheduler, stopping = Scheduler(app=app), threading.Event()

    def run() -> None:
        while not stopping.is_set():
            scheduler.tick()

    threading.Thread(target=run, daemon=True).start()
    wait_for(lambda: scheduler._listener.connected_seconds > 0, "beat listens")
    yield
    stopping.set()
    wakeups.wake_beat()
    scheduler.close()
    scheduler._listener.close()


@pytest.mark.usefixtures("_beat")
def test_outcome_wakes_beat_which_delivers_at_once_and_stores_the_answer() -> None:
    with Receiver() as receiver:
        owner = make_user()
        subscriptions.create_webhook(owner=owner, name="hook", url=receiver.url, events=WEBHOOK_EVENTS)
        hold = run_on(make_worker(), make_execution(job=make_job(owner=owner)))
        began = time.monotonic()
        attempts.finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
        wait_for(lambda: receiver.received, "it is delivered", seconds=10)
        assert time.monotonic() - began < 5
        wait_for(lambda: WebhookDelivery.objects.get().state == "delivered", "that is stored", seconds=10)
