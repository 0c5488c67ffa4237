"""The report of a closing beat about its due window, which benchmarks and operators read."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import redis
from pytest_django import Settings

from benchmarks.punctual_beat import WINDOW
from jobs.beat.scheduler import Scheduler
from jobs.db.due_window import DueEntry
from jobs.models import Counter
from jobs.tasks import refill_due_window
from scheduler_project.celery import app

pytestmark = pytest.mark.django_db(transaction=True)


def test_closing_beat_reports_the_accuracy_of_its_window(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        scheduler = Scheduler(app=app)
        with caplog.at_level(logging.INFO, logger="jobs.db.due_window"):
            now = datetime.now(UTC)
            scheduler.window.next_after(now.timestamp())
            refill_due_window()
            scheduler.window.next_after(now.timestamp())
            scheduler.window.next_after(now.timestamp())
            scheduler.window.count_unannounced([DueEntry(uuid4(), now + timedelta(seconds=1))])
            scheduler.close()
            scheduler.close()  # as Celery may do; nothing is counted twice
        client.flushall()
        assert Counter.objects.get(name="due_window_hits").value == 2
        assert Counter.objects.get(name="due_window_unannounced").value == 1
    report = WINDOW.search(caplog.text)
    assert report is not None
    assert report.groups() == ("2", "1", "1", "0")
