"""Celery consumer that survives any message and can be reconnected from another thread.

A message is only a hint: an unreadable one is dropped, and beat sends its execution again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker import consumer as stock
from redis.exceptions import RedisError

from jobs.telemetry.outage_log import find_unavailable_service
from workers.celery import remote_control
from workers.celery.transport import is_redis_outage

logger = logging.getLogger(__name__)


class Consumer(stock.Consumer):
    Blueprint = remote_control.Blueprint

    def reconnect_to_broker(self) -> None:
        """Rebuild everything between Redis and the pool, without touching runs; callable from any thread."""
        self.call_soon(self._raise_connection_lost)

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*args, **options)

        def handle_safely(message: Any) -> None:
            try:
                _validate_body(message.payload)
                handle(message)
            except Exception as error:
                if is_redis_outage(error):
                    raise
                if find_unavailable_service(error) is not None:
                    logger.warning("Rejected a message during an outage; beat sends runs again: %s", str(error))
                else:
                    logger.error("Dropped an invalid message: %s: %.200s", type(error).__name__, error)  # noqa: TRY400 - the traceback would not help
                # An unacknowledged message would count against the prefetch limit.
                if not message.acknowledged:
                    _reject(message)

        return handle_safely

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Drop the message; the stock version stores a result in the database, under the id in the message."""
        logger.error("Dropped a message for an unknown task: %.200s", exc)
        _reject(message)

    @staticmethod
    def _raise_connection_lost() -> None:
        """Make Celery close the connection and restart every step of the consumer."""
        raise ConnectionResetError("The consumer stopped taking messages; reconnecting")


def _reject(message: Any) -> None:
    message.reject_log_error(logger, (RedisError, OSError))


def _validate_body(body: object) -> None:
    """Raise TypeError for a malformed task body: in the pool it would leave a request that never finishes."""
    match body:
        case [list(), dict(), dict()]:
            return
    raise TypeError("its body is not that of a task")
