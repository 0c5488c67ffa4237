"""Connections to a frozen database are abandoned after their read timeout."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection, transaction

from jobs.db.read_timeout import limit_read_time
from jobs.db.transactions import releasing_connection
from tests.support.factories import make_worker
from workers.control_plane import direct
from workers.control_plane.direct import DirectControlPlane
from workers.errors import ControlPlaneUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 1.0
SOON = 10.0
POOL_SIZE = int(os.environ["DATABASE_POOL_SIZE"])


@contextmanager
def frozen_backend() -> Iterator[None]:
    """Freeze the server process of this thread's connection, as swapping does to all of them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def query() -> int:
    with releasing_connection(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        (one,) = cursor.fetchone()
        return int(one)


def test_frozen_connection_is_replaced() -> None:
    with frozen_backend():
        started = time.monotonic()
        with limit_read_time(SECONDS), pytest.raises(OperationalError), transaction.atomic():
            query()
        assert time.monotonic() - started < SOON
        connection.close()
        assert query() == 1


def test_frozen_idle_connection_fails_only_one_call() -> None:
    with frozen_backend():
        connection.close()  # back to the pool
        failed = 0
        for _ in range(POOL_SIZE + 1):
            started = time.monotonic()
            try:
                with limit_read_time(SECONDS):
                    assert query() == 1
            except OperationalError:
                failed += 1
            assert time.monotonic() - started < SOON
        assert failed == 1, "the pool returned it once and dropped it"


def test_server_error_keeps_the_connection() -> None:
    with limit_read_time(SECONDS), connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        before = cursor.fetchone()
        cursor.execute("SET statement_timeout = '50ms'")
        with pytest.raises(OperationalError):
            cursor.execute("SELECT pg_sleep(10)")
        cursor.execute("RESET statement_timeout")
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone() == before


def test_renewal_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "RENEWAL_TIMEOUT_SECONDS", SECONDS)
    plane, worker = DirectControlPlane(), make_worker()
    with frozen_backend():
        started = time.monotonic()
        with pytest.raises(ControlPlaneUnavailable):
            plane.renew(worker, [])
        assert time.monotonic() - started < SOON
        assert plane.renew(worker, []) == []
