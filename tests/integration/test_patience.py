"""A database that is frozen, not gone, is given up after a while by whoever has no more time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, transaction

from jobs.patience import patience
from jobs.services.database import pooled
from tests.factories import make_worker
from workers import direct_control_plane
from workers.direct_control_plane import DirectControlPlane
from workers.errors import ControlPlaneUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 1.0
SOON = 10.0
POOL_SIZE = int(os.environ["DATABASE_POOL_SIZE"])


@contextmanager
def frozen_backend() -> Iterator[None]:
    """The server process behind this thread's connection stands still, as all of them do when the machine swaps."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def answer() -> int:
    with pooled(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        (one,) = cursor.fetchone()
        return int(one)


def test_it_is_given_up_and_another_connection_takes_its_place() -> None:
    with frozen_backend():
        began = time.monotonic()
        with patience(SECONDS), pytest.raises(OperationalError), transaction.atomic():
            answer()
        assert time.monotonic() - began < SOON
        connection.close()
        assert answer() == 1


def test_an_idle_connection_that_froze_costs_one_call_its_patience() -> None:
    with frozen_backend():
        connection.close()  # back to the pool
        failed = 0
        for _ in range(POOL_SIZE + 1):
            began = time.monotonic()
            try:
                with patience(SECONDS):
                    assert answer() == 1
            except OperationalError:
                failed += 1
            assert time.monotonic() - began < SOON
        assert failed == 1, "its turn came once, and the pool was rid of it"


def test_a_server_error_leaves_the_connection_alone() -> None:
    with patience(SECONDS), connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        before = cursor.fetchone()
        cursor.execute("SET statement_timeout = '50ms'")
        with pytest.raises(OperationalError):
            cursor.execute("SELECT pg_sleep(10)")
        cursor.execute("RESET statement_timeout")
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone() == before


def test_a_renewal_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_control_plane, "RENEWAL_SECONDS", SECONDS)
    plane, worker = DirectControlPlane(), make_worker()
    with frozen_backend():
        began = time.monotonic()
        with pytest.raises(ControlPlaneUnavailable):
            plane.renew(worker, [])
        assert time.monotonic() - began < SOON
        assert plane.renew(worker, []) == []
