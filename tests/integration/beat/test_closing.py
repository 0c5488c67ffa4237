"""Beat closes at once, whatever it is doing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from jobs.beat import scheduler as beat
from jobs.beat.scheduler import Scheduler
from jobs.db.transactions import releasing_connection
from scheduler_project.celery import app

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(app=app)
    yield scheduler
    scheduler.close()
    scheduler._listener.close()


def test_close_is_idempotent(scheduler: Scheduler) -> None:
    scheduler.tick()
    scheduler.close()
    scheduler.close()


def test_closes_during_a_notification(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives while the tick, on the same thread, notifies a stage."""
    monkeypatch.setattr(beat, "SHUTDOWN_TIMEOUT_SECONDS", 0.2)
    closed = threading.Event()

    def interrupted() -> None:
        with scheduler._place._notified._cond:  # type: ignore[attr-defined]  # the lock that `notify` takes
            scheduler.close()
            closed.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert closed.wait(DEADLINE)


def test_closes_during_a_statement(scheduler: Scheduler) -> None:
    scheduler.tick()
    scheduler.window.hits += 1
    closed = threading.Event()

    def interrupted() -> None:
        with releasing_connection():
            connection.ensure_connection()
            # As during a wait for Postgres; a signal is handled on the thread that it interrupts.
            with connection.connection.lock:
                scheduler.close()
                closed.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert closed.wait(DEADLINE)
