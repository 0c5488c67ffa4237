"""Celery's consumer, which no message can end, and which can be made to consume again from outside.

A message is a hint: one that cannot be understood is dropped, and what it stood for is sent again by beat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker import consumer as stock
from kombu import Queue
from redis.exceptions import RedisError

from workers.transport import is_redis_away

logger = logging.getLogger(__name__)


class Consumer(stock.Consumer):
    def consume_again(self, queue: Queue) -> None:
        """Called by another thread. Everything between Redis and the pool is made anew; what runs is not touched."""
        # Somebody may have told it by remote control to leave the queue alone: that outlasts a new connection.
        self.app.amqp.queues.select_add(queue)
        self.call_soon(self._lose_connection)

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(*args, **options)

        def handle_safely(message: Any) -> None:
            try:
                _check_body(message.payload)
                handle(message)
            except Exception as error:
                if is_redis_away(error):
                    raise
                logger.error("Dropped a message that makes no sense: %s: %.200s", type(error).__name__, error)  # noqa: TRY400 - where it broke says nothing
                # Left alone, it would count against how much may be fetched.
                if not message.acknowledged:
                    _reject(message)

        return handle_safely

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """The stock version stores a result for it in the database, under whatever id the message gives."""
        logger.error("Dropped a message for a task that there is not: %.200s", exc)
        _reject(message)

    @staticmethod
    def _lose_connection() -> None:
        """Celery's own way back: it closes the connection and starts every step of the consumer anew."""
        raise ConnectionResetError("The consumer took nothing more; it connects anew")


def _reject(message: Any) -> None:
    message.reject_log_error(logger, (RedisError, OSError))


def _check_body(body: object) -> None:
    """Celery unpacks it in the pool, where what goes wrong leaves a request behind that never ends."""
    match body:
        case [list(), dict(), dict()]:
            return
    raise TypeError("its body is not that of a task")
