"""/healthz: liveness of the process. /readyz: readiness of its dependencies.

Only the database decides readiness: without Redis, the object store, workers or beat, work is late but never lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import lru_cache
from http import HTTPStatus

import redis
from django.conf import settings
from django.db import connection, connections, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from jobs.db.transactions import with_timeouts
from jobs.models import ReaperStamp, Worker, WorkerStatus
from jobs.storage import s3

logger = logging.getLogger(__name__)

CHECK_TIMEOUT_SECONDS = 2.0
# /readyz is public, so results are cached and each check runs once at a time.
ANSWER_CACHE_SECONDS = 1.0
BEAT_STALE_SECONDS = 30
REQUIRED_CHECKS = frozenset({"database", "migrations"})
OK = "ok"


class ReadinessCheck:
    """A check with a short cache and single-flight execution: concurrent probes share one result."""

    def __init__(self, name: str, check: Callable[[], str]) -> None:
        self.name = name
        self._check = check
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"readyz-{name}")
        self._started: tuple[float, Future[str]] | None = None

    def start(self) -> tuple[float, Future[str]]:
        """Return the start time and the result of the current check, starting one if needed."""
        with self._lock:
            now = time.monotonic()
            if self._started is None or (self._started[1].done() and now - self._started[0] >= ANSWER_CACHE_SECONDS):
                self._started = now, self._threads.submit(self._run)
            return self._started

    def _run(self) -> str:
        try:
            return self._check()
        except Exception as error:  # noqa: BLE001 - any error means not ready
            logger.warning("Readiness check of %s failed: %s", self.name, error)
            return "does not answer"
        finally:
            connections.close_all()


def _check_database() -> str:
    with transaction.atomic(), with_timeouts(statement_seconds=1, lock_seconds=1), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return OK


def _check_migrations() -> str:
    with transaction.atomic(), with_timeouts(statement_seconds=1, lock_seconds=1):
        missing = _list_shipped_migrations() - set(MigrationRecorder(connection).applied_migrations())
    return f"{len(missing)} migrations are not applied; run manage.py migrate" if missing else OK


@lru_cache(maxsize=1)
def _list_shipped_migrations() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def _check_redis() -> str:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL, socket_timeout=1, socket_connect_timeout=1) as client:
        client.ping()
    return OK


def _check_storage() -> str:
    s3.check_storage()
    return OK


def _check_workers() -> str:
    with transaction.atomic(), with_timeouts(statement_seconds=1, lock_seconds=1):
        online = Worker.objects.filter(status=WorkerStatus.ONLINE, lease_until__gt=Now()).exists()
    return OK if online else "no worker is online"


def _check_beat() -> str:
    """Check for a recent stamp; every pass of a beat leaves one."""
    with transaction.atomic(), with_timeouts(statement_seconds=1, lock_seconds=1):
        since = Now() - timedelta(seconds=BEAT_STALE_SECONDS)
        passed = ReaperStamp.objects.filter(stamped_at__gt=since).exists()
    return OK if passed else f"no beat was active for {BEAT_STALE_SECONDS} seconds"


@lru_cache(maxsize=1)
def _build_checks() -> tuple[ReadinessCheck, ...]:
    checks = {
        "database": _check_database,
        "migrations": _check_migrations,
        "redis": _check_redis,
        "storage": _check_storage,
        "workers": _check_workers,
        "beat": _check_beat,
    }
    return tuple(ReadinessCheck(name, check) for name, check in checks.items())


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": OK})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    started = {check.name: check.start() for check in _build_checks()}
    # The timeout runs from the start of the check, so a probe does not wait for one that already hangs.
    results = {
        name: _await_result(started_at + CHECK_TIMEOUT_SECONDS, future)
        for name, (started_at, future) in started.items()
    }
    failed = {name for name, result in results.items() if result != OK}
    unavailable = bool(failed & REQUIRED_CHECKS)
    status = "unavailable" if unavailable else "degraded" if failed else OK
    return JsonResponse(
        {"status": status, "checks": results},
        status=HTTPStatus.SERVICE_UNAVAILABLE if unavailable else HTTPStatus.OK,
    )


def _await_result(deadline: float, future: Future[str]) -> str:
    try:
        return future.result(timeout=max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        return f"no answer within {CHECK_TIMEOUT_SECONDS:g} seconds"
