"""What a beat that ends says about its due window: benchmarks and operators read it from outside the process."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import redis
from pytest_django import Settings

from benchmarks.punctual_beat import WINDOW
from jobs.beat import Scheduler
from jobs.due_window import Due
from jobs.models import Counter
from jobs.tasks import refill_due_window
from scheduler_project.celery import app

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_beat_that_ends_says_how_right_its_window_was(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        scheduler = Scheduler(app=app)
        with caplog.at_level(logging.INFO, logger="jobs.due_window"):
            now = datetime.now(UTC)
            scheduler.window.next_after(now.timestamp())
            refill_due_window()
            scheduler.window.next_after(now.timestamp())
            scheduler.window.next_after(now.timestamp())
            scheduler.window.count_unannounced([Due(uuid4(), now + timedelta(seconds=1))])
            scheduler.close()
            scheduler.close()  # as Celery may; nothing is counted twice
        client.flushall()
        assert Counter.objects.get(name="due_window_believed").value == 2
        assert Counter.objects.get(name="due_window_unannounced").value == 1
    said = WINDOW.search(caplog.text)
    assert said is not None
    assert said.groups() == ("2", "1", "1", "0")
