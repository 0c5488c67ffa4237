"""Logs of an outage: one line when it begins and one when it ends; other errors keep their tracebacks."""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Iterator

import psycopg
import pytest
import redis
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError
from celery.beat import SchedulingError
from django.db import IntegrityError, OperationalError
from kombu.exceptions import OperationalError as BrokerError
from psycopg_pool import PoolTimeout

from jobs.db.read_timeout import DatabaseUnresponsive
from jobs.domain.errors import StorageUnavailable
from jobs.telemetry.outage_log import OutageHandler, find_unavailable_service
from tests.support.waiting import wait_for
from workers.errors import ControlPlaneUnavailable, WorkerTokenRejected

QUIET_SECONDS = 0.2


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def handling(error: Exception, former: Exception) -> Exception:
    error.__context__ = former
    return error


@pytest.mark.parametrize(
    ("error", "service"),
    [
        (caused(OperationalError("x"), psycopg.OperationalError("refused")), "Postgres"),
        (caused(OperationalError("x"), PoolTimeout("none")), "Postgres"),
        (caused(OperationalError("x"), psycopg.errors.AdminShutdown("x")), "Postgres"),
        (
            caused(OperationalError("x"), caused(DatabaseUnresponsive("x"), psycopg.errors.ReadOnlySqlTransaction())),
            "Postgres",
        ),
        (caused(ControlPlaneUnavailable("x"), caused(OperationalError("x"), PoolTimeout("none"))), "Postgres"),
        (redis.ConnectionError("refused"), "Redis"),
        (redis.TimeoutError("slow"), "Redis"),
        (BrokerError("refused"), "Redis"),
        (handling(SchedulingError("x"), BrokerError("refused")), "Redis"),
        (handling(SchedulingError("x"), TypeError("x")), None),
        (handling(ValueError("x"), BrokerError("refused")), None),
        (StorageUnavailable(), "The object store"),
        (EndpointConnectionError(endpoint_url="http://s3"), "The object store"),
        (ReadTimeoutError(endpoint_url="http://s3"), "The object store"),
        (ControlPlaneUnavailable("502"), "The control plane"),
        (WorkerTokenRejected("token"), None),
        (caused(OperationalError("x"), psycopg.errors.DeadlockDetected("x")), None),
        (caused(OperationalError("x"), psycopg.errors.QueryCanceled("x")), None),
        (IntegrityError("x"), None),
        (redis.ResponseError("WRONGTYPE"), None),
        (ValueError("x"), None),
    ],
)
def test_outages_are_distinguished_from_other_errors(error: Exception, service: str | None) -> None:
    assert find_unavailable_service(error) == service


@pytest.fixture
def handler() -> Iterator[OutageHandler]:
    outage_handler = OutageHandler(io.StringIO(), quiet_seconds=QUIET_SECONDS)
    root = logging.getLogger()
    root.addHandler(outage_handler)
    yield outage_handler
    root.removeHandler(outage_handler)


@pytest.fixture
def written(handler: OutageHandler) -> io.StringIO:
    assert isinstance(handler.stream, io.StringIO)
    return handler.stream


def fail(error: Exception) -> None:
    try:
        raise error
    except Exception:
        logging.getLogger("a.loop").exception("The loop failed")


def test_outage_is_one_line_at_each_end(written: io.StringIO) -> None:
    for _ in range(50):
        fail(redis.ConnectionError("Connection\nrefused"))
        logging.getLogger("another").warning("Trying again: %s", redis.ConnectionError("refused"))
    wait_for(lambda: written.getvalue().count("\n") == 2, "the end is logged")
    first, ended = written.getvalue().splitlines()
    assert first.startswith("Redis is away: Connection refused. ")
    assert ended.startswith("Redis is back: ")
    assert "99 more failures" in ended
    fail(redis.ConnectionError("Connection refused"))
    assert written.getvalue().count("Redis is away") == 2, "a new outage"


def test_each_service_has_its_own_outage(written: io.StringIO) -> None:
    fail(redis.ConnectionError("refused"))
    fail(psycopg.OperationalError("refused"))
    assert "Redis is away" in written.getvalue()
    assert "Postgres is away" in written.getvalue()


def test_an_unexpected_error_keeps_its_traceback_once_a_minute(written: io.StringIO) -> None:
    for _ in range(3):
        fail(ValueError("a bug"))
    fail(TypeError("another bug"))
    assert written.getvalue().count("Traceback") == 2
    assert written.getvalue().count("The loop failed: ValueError: a bug (") == 2


def test_other_records_are_unchanged(written: io.StringIO) -> None:
    logging.getLogger("a").warning("Attempt %s of %s", 1, "x")
    logging.getLogger("a").warning("What became of %s: %s", "x", str(redis.ConnectionError("refused")))
    assert written.getvalue() == "Attempt 1 of x\nWhat became of x: refused\n"


def test_503_response_is_logged_unless_an_outage_explains_it(written: io.StringIO) -> None:
    def answer(path: str) -> None:
        logging.getLogger("django.request").error("Service Unavailable: %s", path, extra={"status_code": 503})

    answer("/busy")
    assert written.getvalue() == "Service Unavailable: /busy\n"
    fail(psycopg.OperationalError("refused"))
    answer("/away")
    assert "/away" not in written.getvalue()


def test_long_outage_is_logged_again(
    handler: OutageHandler, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(psycopg.OperationalError("refused"))
    monkeypatch.setattr(handler, "_reminder_seconds", 0.0)
    fail(psycopg.errors.DiskFull("No space left on device"))
    first, second = written.getvalue().splitlines()
    assert first.startswith("Postgres is away: refused. ")
    assert second == "Postgres is still away, for 0 s and 2 failures: No space left on device."


def test_logging_works_if_no_thread_can_be_started(
    handler: OutageHandler, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(handler, "_quiet_seconds", 600.0)
    fail(redis.ConnectionError("refused"))
    fail(redis.ConnectionError("refused"))
    assert written.getvalue().count("Redis is away") == 1
    monkeypatch.setattr(handler, "_quiet_seconds", 0.0)
    fail(redis.ConnectionError("refused"))
    assert written.getvalue().count("Redis is away") == 2, "no timer saw the end, so the next failure is a new outage"


def test_wrong_arguments_do_not_raise(handler: OutageHandler, capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("a bug")
    for _ in range(2):  # the second time the traceback is omitted, which formats the message
        handler.handle(
            logging.LogRecord("a", logging.ERROR, __file__, 1, "%d of them", ("x",), (ValueError, error, None))
        )
    assert capsys.readouterr().err.count("--- Logging error ---") == 2


def test_forked_process_logs_its_own_outage(written: io.StringIO) -> None:
    fail(redis.ConnectionError("refused"))
    child = os.fork()
    if not child:
        fail(redis.ConnectionError("refused"))
        os._exit(written.getvalue().count("Redis is away"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2


def test_signal_outage_handlermay_log_during_emit(
    handler: OutageHandler, written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(dict[object, object]):
        """Interrupts its reader, as a signal may."""

        interrupted = False

        def get(self, key: object, default: object = None) -> object:
            if not self.interrupted:
                self.interrupted = True
                fail(TypeError("in a signal handler"))
            return super().get(key, default)

    monkeypatch.setattr(handler, "_tracebacks", Interrupting())
    thread = threading.Thread(target=fail, args=(ValueError("a bug"),), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "a deadlock"
    assert written.getvalue().count("The loop failed\n") == 2
