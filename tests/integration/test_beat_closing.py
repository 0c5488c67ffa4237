"""Beat ends when it is told to, in the middle of whatever it is doing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from jobs import beat
from jobs.beat import Scheduler
from jobs.services.database import pooled
from scheduler_project.celery import app

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(app=app)
    yield scheduler
    scheduler.close()
    scheduler._listener.close()


def test_closing_twice_is_closing_once(scheduler: Scheduler) -> None:
    scheduler.tick()
    scheduler.close()
    scheduler.close()


def test_it_closes_also_in_the_middle_of_a_notification(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the signal comes while the tick, on this thread, tells a stage something."""
    monkeypatch.setattr(beat, "CLOSE_SECONDS", 0.2)
    closed = threading.Event()

    def interrupted() -> None:
        with scheduler._placing._wanted._cond:  # type: ignore[attr-defined]  # the lock that telling it takes
            scheduler.close()
            closed.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert closed.wait(DEADLINE)


def test_it_closes_also_in_the_middle_of_a_statement(scheduler: Scheduler) -> None:
    scheduler.tick()
    scheduler.window.believed += 1
    closed = threading.Event()

    def interrupted() -> None:
        with pooled():
            connection.ensure_connection()
            # As while it waits for Postgres; a signal is handled on the thread that it interrupts.
            with connection.connection.lock:
                scheduler.close()
                closed.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert closed.wait(DEADLINE)
