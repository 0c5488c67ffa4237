"""Redis transport for Celery that survives unreadable messages and Redis outages, and reuses its client.

Anyone who can write to Redis can write anything. The transport drops messages that it cannot read: Postgres knows which
executions to run, and beat sends them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import redis as stock
from kombu.transport import virtual
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, RedisError

from jobs.domain.messages import is_worker_queue

logger = logging.getLogger(__name__)


class QoS(stock.QoS):
    """Keeps no record in Redis of the messages of a worker's own queue, which would take two transactions for each.

    Redis would need it to send them again if the worker dies. Beat does that.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        if _is_hint(message):
            virtual.QoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        if self._holds_hint(delivery_tag):
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if self._holds_hint(delivery_tag):
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().reject(delivery_tag, requeue=requeue)

    def _holds_hint(self, delivery_tag: str) -> bool:
        delivered: Any = self._delivered
        return _is_hint(delivered.get(delivery_tag))


def _is_hint(message: Any) -> bool:
    return message is not None and is_worker_queue(message.delivery_info["routing_key"])


class Channel(stock.Channel):
    QoS = QoS
    _shared_client: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        """Reuse one client: kombu creates one per command, which costs more than the command itself."""
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[misc]
        # After a lost connection the channel has another pool.
        if self._shared_client is None or self._shared_client.connection_pool is not self.pool:
            self._shared_client = super()._create_client()  # type: ignore[misc]
        return self._shared_client

    def _brpop_read(self, **options: Any) -> Any:
        return _drop_unreadable(super()._brpop_read, **options)  # type: ignore[misc]  # kombu's stubs know the public half

    def _receive(self) -> Any:
        return _drop_unreadable(super()._receive)  # type: ignore[misc]

    def _get_pool(self, asynchronous: bool = False) -> Any:
        """Raise ConnectionError on a closed channel.

        Celery closes a connection twice, and pool threads acknowledge on a closed one. Kombu raises AttributeError for
        both, which Celery does not recognise as a lost connection: the worker would exit.
        """
        if self.connection is None or self.connection.client is None:
            raise RedisConnectionError("the connection of this channel is closed")
        return super()._get_pool(asynchronous=asynchronous)  # type: ignore[misc]

    def close(self) -> None:
        """Close completely even without Redis: kombu stops at the first error and leaves other channels open."""
        try:
            super().close()
        except Exception as error:  # noqa: BLE001 - an error here ends the worker
            logger.warning("Closed a channel without Redis: %s: %.200s", type(error).__name__, error)
            self._close_locally()

    def _close_locally(self) -> None:
        channel: Any = self  # kombu's stubs know the public half
        if channel._qos is not None:
            # Restoring these messages failed, and kombu would try again at exit. Beat sends them again.
            channel._qos._on_collect.cancel()
            channel._qos._delivered.clear()
        channel._disconnect_pools()
        channel._close_clients()
        channel.closed = True
        if channel.connection is not None:
            channel.connection.cycle.discard(channel)
            channel.connection.close_channel(channel)


class Transport(stock.Transport):
    Channel = Channel


def is_redis_outage(error: Exception) -> bool:
    """Return whether the error means that Redis is unreachable; kombu's own list includes every KeyError."""
    return isinstance(error, RedisError | OSError) and not isinstance(error, DataError)


def _drop_unreadable(read: Callable[..., Any], **options: Any) -> Any:
    try:
        return read(**options)
    except Empty:
        raise
    except Exception as error:
        if is_redis_outage(error):
            raise
        logger.error("Dropped an unreadable queue entry: %s: %.200s", type(error).__name__, error)  # noqa: TRY400 - the traceback would not help
        return True
