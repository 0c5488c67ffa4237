"""Shares of the connection pool, so that one group of threads cannot take the connections of another.

Threads outside any group use the whole pool.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import OperationalError
from django.db.backends.postgresql import base
from psycopg import Connection

_thread = threading.local()


def set_thread_shares(*shares: threading.Semaphore) -> None:
    """Let the calling thread hold a connection only while it holds a slot of each share.

    Threads with overlapping shares must name them in the same order.
    """
    _thread.shares = shares


class PoolShareWrapper(base.DatabaseWrapper):
    _slots: tuple[threading.Semaphore, ...] = ()

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection[Any]:
        if not self._slots:
            self._enter(getattr(_thread, "shares", ()))
        try:
            connection: Connection[Any] = super().get_new_connection(conn_params)
        except BaseException:
            self._leave()
            raise
        return connection

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]
        finally:
            self._leave()

    def _enter(self, shares: tuple[threading.Semaphore, ...]) -> None:
        seconds = self.settings_dict["OPTIONS"].get("pool", {}).get("timeout", 30)
        deadline = time.monotonic() + seconds
        for share in shares:
            if not share.acquire(timeout=max(0.0, deadline - time.monotonic())):
                self._leave()
                raise OperationalError(f"No connection was free within {seconds:g} seconds")
            self._slots += (share,)

    def _leave(self) -> None:
        slots, self._slots = self._slots, ()
        for slot in slots:
            slot.release()
