"""/healthz: the process answers. /readyz: what it stands on answers too.

Only the database decides readiness: without Redis, the object store, a worker or a beat, work is late and never lost.
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

from jobs import storage
from jobs.models import ReaperStamp, Worker, WorkerStatus
from jobs.services.database import bounded

logger = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
BEAT_SECONDS = 30
REQUIRED = frozenset({"database", "migrations"})
OK = "ok"


class Check:
    """One question at a time: probes that come while it is being asked wait for the same answer, so none pile up."""

    def __init__(self, name: str, ask: Callable[[], str]) -> None:
        self.name = name
        self._ask = ask
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"readyz-{name}")
        self._asked: Future[str] | None = None

    def start(self) -> Future[str]:
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked = self._threads.submit(self._answer)
            return self._asked

    def _answer(self) -> str:
        try:
            return self._ask()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is not ready
            logger.warning("The readiness check of %s failed: %s", self.name, error)
            return "does not answer"
        finally:
            connections.close_all()


def _database() -> str:
    with transaction.atomic(), bounded(statement_seconds=1, lock_seconds=1), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return OK


def _migrations() -> str:
    with transaction.atomic(), bounded(statement_seconds=1, lock_seconds=1):
        missing = _shipped_migrations() - set(MigrationRecorder(connection).applied_migrations())
    return f"{len(missing)} migrations are not applied; run manage.py migrate" if missing else OK


@lru_cache(maxsize=1)
def _shipped_migrations() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)


def _redis() -> str:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL, socket_timeout=1, socket_connect_timeout=1) as client:
        client.ping()
    return OK


def _storage() -> str:
    storage.check_storage()
    return OK


def _workers() -> str:
    with transaction.atomic(), bounded(statement_seconds=1, lock_seconds=1):
        online = Worker.objects.filter(status=WorkerStatus.ONLINE, lease_until__gt=Now()).exists()
    return OK if online else "no worker is online"


def _beat() -> str:
    """Every pass of every beat leaves a stamp, many a minute."""
    with transaction.atomic(), bounded(statement_seconds=1, lock_seconds=1):
        lately = Now() - timedelta(seconds=BEAT_SECONDS)
        passed = ReaperStamp.objects.filter(stamped_at__gt=lately).exists()
    return OK if passed else f"no beat has passed for {BEAT_SECONDS} seconds"


@lru_cache(maxsize=1)
def _checks() -> tuple[Check, ...]:
    asks = {
        "database": _database,
        "migrations": _migrations,
        "redis": _redis,
        "storage": _storage,
        "workers": _workers,
        "beat": _beat,
    }
    return tuple(Check(name, ask) for name, ask in asks.items())


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": OK})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    asked = {check.name: check.start() for check in _checks()}
    # One deadline for all of them: they were asked at the same time.
    deadline = time.monotonic() + CHECK_SECONDS
    answers = {name: _by(deadline, future) for name, future in asked.items()}
    failed = {name for name, answer in answers.items() if answer != OK}
    unavailable = bool(failed & REQUIRED)
    verdict = "unavailable" if unavailable else "degraded" if failed else OK
    return JsonResponse(
        {"status": verdict, "checks": answers},
        status=HTTPStatus.SERVICE_UNAVAILABLE if unavailable else HTTPStatus.OK,
    )


def _by(deadline: float, future: Future[str]) -> str:
    try:
        return future.result(timeout=max(0.0, deadline - time.monotonic()))
    except TimeoutError:
        return f"no answer within {CHECK_SECONDS:g} seconds"
