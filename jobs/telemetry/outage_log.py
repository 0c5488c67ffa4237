"""Log handler that reduces an outage to one line when it begins, one when it ends, and occasional reminders.

While Postgres, Redis, the object store or the control plane is away, every loop of a process keeps failing, and each
failure is logged where it is handled. The handler recognises such records by the error that they carry. Other errors
keep their traceback, but an identical one is printed only once a minute.

Errors are matched by name, so that a worker without Django, psycopg or redis can use the handler.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from http import HTTPStatus
from typing import TextIO

logger = logging.getLogger(__name__)

# Longer than any loop's retry interval.
QUIET_SECONDS = 30.0
REMINDER_SECONDS = 600.0
TRACEBACK_SECONDS = 60.0
MAX_CAUSE_LENGTH = 300
MAX_TRACEBACKS_KNOWN = 1000

POSTGRES, REDIS, STORAGE, CONTROL_PLANE = "Postgres", "Redis", "The object store", "The control plane"
SERVICE_BY_ERROR: dict[str, str | None] = {
    "psycopg.OperationalError": POSTGRES,
    "psycopg.InterfaceError": POSTGRES,
    "django.db.utils.OperationalError": POSTGRES,
    "django.db.utils.InterfaceError": POSTGRES,
    "redis.exceptions.ConnectionError": REDIS,
    "redis.exceptions.TimeoutError": REDIS,
    "kombu.exceptions.OperationalError": REDIS,
    "jobs.domain.errors.StorageUnavailable": STORAGE,
    "botocore.exceptions.ConnectionError": STORAGE,
    "botocore.exceptions.HTTPClientError": STORAGE,
    # A rejected token is not an outage.
    "workers.errors.WorkerTokenRejected": None,
    "workers.errors.ControlPlaneUnavailable": CONTROL_PLANE,
}
# Celery's beat raises this while handling the actual error, without `from`.
ABOUT_CONTEXT = "celery.beat.SchedulingError"
# Raised when a connection is abandoned, whatever the SQLSTATE.
UNRESPONSIVE_ERROR = "jobs.db.read_timeout.DatabaseUnresponsive"
# Errors with other SQLSTATEs, such as deadlocks, are not outages: these are connections, resources and shutdown.
OUTAGE_SQLSTATES = ("08", "53", "57P")


def find_unavailable_service(error: BaseException) -> str | None:
    """Return the service that is unavailable according to the error; None for other errors."""
    service = None
    for each in _cause_chain(error):
        names = [_name(kind) for kind in type(each).__mro__]
        if UNRESPONSIVE_ERROR in names:
            return POSTGRES
        state = getattr(each, "sqlstate", None)
        if state is not None and not state.startswith(OUTAGE_SQLSTATES):
            return None
        known = next((name for name in names if name in SERVICE_BY_ERROR), None)
        # The innermost error is the most specific.
        service = SERVICE_BY_ERROR[known] if known else service
    return service


def _cause_chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        about_context = _name(type(current)) == ABOUT_CONTEXT
        current = current.__cause__ or (current.__context__ if about_context else None)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@dataclass
class Outage:
    began: float
    last: float
    reported_at: float
    failures: int = 1
    watched: bool = True  # a timer will check whether it has ended


class OutageHandler(logging.StreamHandler[TextIO]):
    """Stream handler; its state is guarded by the handler's lock, which `emit` is called with."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        reminder_seconds: float = REMINDER_SECONDS,
    ) -> None:
        super().__init__(stream)
        self._quiet_seconds = quiet_seconds
        self._reminder_seconds = reminder_seconds
        self._outages: dict[str, Outage] = {}
        self._tracebacks: dict[tuple[object, ...], float] = {}
        # Outages end on a timer thread, which a fork does not copy.
        os.register_at_fork(after_in_child=self._outages.clear)

    def emit(self, record: logging.LogRecord) -> None:
        # Other handlers must get the original record.
        rewritten = copy(record)
        try:
            emits = self._rewrite(rewritten)
        except Exception:  # noqa: BLE001 - logging must not raise
            self.handleError(record)
            return
        if emits:
            super().emit(rewritten)

    def _rewrite(self, record: logging.LogRecord) -> bool:
        """Rewrite a record in place; return whether to write it."""
        if getattr(record, "status_code", None) == HTTPStatus.SERVICE_UNAVAILABLE and self._outages:
            return False  # Django's log of a 503 response that the outage's line explains
        error = _extract_error(record)
        if error is None:
            return True
        service = find_unavailable_service(error)
        if service is None:
            self._limit_traceback(record, error)
            return True
        message = self._count_failure(service)
        if message is None:
            return False
        cause = " ".join(str(error).split())[:MAX_CAUSE_LENGTH].rstrip(".")
        record.msg, record.args = message, (service, cause)
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
        return True

    def _count_failure(self, service: str) -> str | None:
        """Count a failure; return the message to log, with placeholders for service and cause, or None."""
        now = time.monotonic()
        outage = self._outages.get(service)
        if outage is None or not (outage.watched or now - outage.last < self._quiet_seconds):
            began = self._outages[service] = Outage(now, now, now)
            began.watched = self._schedule_check(service, self._quiet_seconds)
            return "%s is away: %s. Until it is back, failures are counted, not logged."
        outage.failures += 1
        outage.last = now
        if now - outage.reported_at < self._reminder_seconds:
            return None
        outage.reported_at = now
        return f"%s is still away, for {now - outage.began:.0f} s and {outage.failures} failures: %s."

    def _schedule_check(self, service: str, seconds: float) -> bool:
        timer = threading.Timer(seconds, self._end_if_quiet, [service])
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # no more threads are available, or the interpreter is shutting down
            return False
        return True

    def _end_if_quiet(self, service: str) -> None:
        self.acquire()
        try:
            outage = self._outages.get(service)
            if outage is None:
                return
            quiet = time.monotonic() - outage.last
            if quiet >= self._quiet_seconds:
                del self._outages[service]
            else:
                outage.watched = self._schedule_check(service, self._quiet_seconds - quiet)
                return
        finally:
            self.release()
        away, more = outage.last - outage.began, outage.failures - 1
        logger.warning(
            "%s is back: away for %.1f s, %d more failures, none for %.0f s", service, away, more, self._quiet_seconds
        )

    def _limit_traceback(self, record: logging.LogRecord, error: BaseException) -> None:
        if not record.exc_info:
            return
        key = (record.name, record.msg, type(error))
        now = time.monotonic()
        if now - self._tracebacks.get(key, -TRACEBACK_SECONDS) < TRACEBACK_SECONDS:
            note = "the same traceback was logged less than a minute ago"
            record.msg, record.args = "%s: %s: %s (%s)", (record.getMessage(), type(error).__name__, error, note)
            record.exc_info = record.exc_text = None
            return
        if len(self._tracebacks) >= MAX_TRACEBACKS_KNOWN:
            self._tracebacks.clear()
        self._tracebacks[key] = now


def _extract_error(record: logging.LogRecord) -> BaseException | None:
    """Return the error that a record is about, from its traceback or its arguments."""
    if isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
        return record.exc_info[1]
    arguments = record.args if isinstance(record.args, tuple) else ()
    return next((argument for argument in arguments if isinstance(argument, BaseException)), None)
