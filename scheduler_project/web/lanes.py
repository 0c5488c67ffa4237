"""Thread pools ("lanes") per kind of request, so that one kind never starves another of threads or connections.

Invariant: the number of threads does not grow with the number of clients.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from scheduler_project.db_backend.pool_shares import set_thread_shares
from scheduler_project.web.request_bodies import ClientDisconnected, RequestRefused

Result = TypeVar("Result")
Awaited = TypeVar("Awaited")

ORDINARY_THREADS = 20
RESERVED_THREADS = 4
READINESS_THREADS = 2
HEALTH_THREADS = 1
LOOK_THREADS = 1
# Running and queued views of a lane, including those of disconnected clients. Bounds memory and queueing time.
MAX_PENDING_VIEWS = 2000
# Connections of the pool that ordinary requests and the steps of streams cannot use.
RESERVED_CONNECTIONS = 2
# Those of them that claims and reports of workers cannot use either: they are for lease renewals.
RENEWAL_CONNECTIONS = 1

CLAIM_PATH = re.compile(r"/api/v1/workers/[^/]+/claim")
# Public, and waits for checks.
READINESS_PATH = "/readyz"
# Needs no other service: without an answer, a supervisor restarts the process.
HEALTH_PATH = "/healthz"
# Renewals keep their own lane, so that heavy reporting never costs a worker its lease.
RENEWAL_PATH = re.compile(r"/api/v1/workers/(terms|[^/]+/heartbeat)")
REPORT_PATH = re.compile(r"/api/v1/workers/(register|[^/]+/(drain|leave))|/api/v1/executions/[^/]+/(start|complete)")
# Users read at the same paths.
REPORT_POST_PATH = re.compile(r"/api/v1/executions/[^/]+/(logs|outputs)")


class LaneFull(RequestRefused):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    detail = "The server has too many requests of this kind at once; try again in a moment."


class Lane:
    def __init__(self, name: str, threads: int, *shares: threading.Semaphore) -> None:
        """Create a lane; each of `shares` bounds the connections that its threads and those of other lanes hold."""
        self._threads = ThreadPoolExecutor(
            max_workers=threads,
            thread_name_prefix=f"web-{name}",
            initializer=set_thread_shares,
            initargs=shares,
        )
        self._views = 0

    async def run_view(self, call: Callable[[], Result], gone: asyncio.Future[None]) -> Result:
        """Run a view, unless its client disconnects before a thread is free."""
        if self._views >= MAX_PENDING_VIEWS:
            raise LaneFull
        begun = threading.Lock()

        def run_unless_gone() -> Result:
            if not begun.acquire(blocking=False):
                raise ClientDisconnected
            return call()

        future = asyncio.get_running_loop().run_in_executor(self._threads, run_unless_gone)
        self._views += 1
        future.add_done_callback(self._count_down)
        await _wait_out_cancellation(asyncio.wait((future, gone), return_when=asyncio.FIRST_COMPLETED), future)
        # A view that has begun runs to its end.
        if not future.done() and begun.acquire(blocking=False):
            raise ClientDisconnected
        return await _wait_out_cancellation(asyncio.shield(future), future)

    def _count_down(self, view: asyncio.Future[Any]) -> None:
        self._views -= 1
        if not view.cancelled():
            # Mark the exception as retrieved; after a disconnect nothing else does.
            view.exception()

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call and wait for its end even when cancelled, because it uses objects of the caller."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await _wait_out_cancellation(asyncio.shield(future), future)


async def _wait_out_cancellation(awaited: Awaitable[Awaited], future: asyncio.Future[Any]) -> Awaited:
    try:
        return await awaited
    except asyncio.CancelledError:
        await asyncio.wait((future,))
        raise


@dataclass(frozen=True, slots=True)
class Route:
    """Lanes of a request's view and of the later steps of its response."""

    view: Lane
    steps: Lane


class Lanes:
    def __init__(self, connections: int) -> None:
        """Create all lanes for a pool of this many connections."""
        but_renewals = threading.Semaphore(max(1, connections - RENEWAL_CONNECTIONS))
        share = threading.Semaphore(max(1, connections - RESERVED_CONNECTIONS))
        waiting = Lane("waiting", RESERVED_THREADS, share, but_renewals)
        claims = Lane("claims", RESERVED_THREADS, but_renewals)
        self._health = Route(Lane("health", HEALTH_THREADS), waiting)
        self._readiness = Route(Lane("readiness", READINESS_THREADS), waiting)
        self._ordinary = Route(Lane("ordinary", ORDINARY_THREADS, share, but_renewals), waiting)
        self._renewals = Route(Lane("renewals", RESERVED_THREADS), waiting)
        self._reports = Route(Lane("reports", RESERVED_THREADS, but_renewals), waiting)
        self._claims = Route(claims, claims)
        # Alone: behind a backlog of claims it would come too late for all that wait.
        self.looks = Lane("looks", LOOK_THREADS, but_renewals)

    def route(self, method: str, path: str) -> Route:
        if path == HEALTH_PATH:
            return self._health
        if path == READINESS_PATH:
            return self._readiness
        if CLAIM_PATH.fullmatch(path):
            return self._claims
        if RENEWAL_PATH.fullmatch(path):
            return self._renewals
        if REPORT_PATH.fullmatch(path) or (method == "POST" and REPORT_POST_PATH.fullmatch(path)):
            return self._reports
        return self._ordinary
