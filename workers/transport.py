"""Celery's Redis transport, for which bytes that are no message cost a line in the log, not the worker; and cheaper.

Whoever can write to Redis can write anything. What cannot be read is dropped: Postgres knows what is to run, and beat
sends it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import redis as stock
from redis.exceptions import DataError, RedisError

logger = logging.getLogger(__name__)


class Channel(stock.Channel):
    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Kombu makes a client for every command, which costs more than the command; it is made to be shared."""
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]
        # A channel that lost its connection gets another pool.
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()  # type: ignore[misc]
        return self._kept

    def _brpop_read(self, **options: Any) -> Any:
        return _forgive(super()._brpop_read, **options)  # type: ignore[misc]  # kombu's stubs know the public half

    def _receive(self) -> Any:
        return _forgive(super()._receive)  # type: ignore[misc]


class Transport(stock.Transport):
    Channel = Channel


def is_redis_away(error: Exception) -> bool:
    """Told apart by type, not by kombu's list of connection errors, in which any KeyError is one."""
    return isinstance(error, RedisError | OSError) and not isinstance(error, DataError)


def _forgive(read: Callable[..., Any], **options: Any) -> Any:
    try:
        return read(**options)
    except Empty:
        raise
    except Exception as error:
        if is_redis_away(error):
            raise
        logger.error("Dropped what is no message from a queue: %s: %.200s", type(error).__name__, error)  # noqa: TRY400 - where it broke says nothing
        return True
