"""Celery's remote control, reduced to inspection: nothing that arrives through Redis changes or stops a worker.

Cancelling and draining go through the API, which checks permissions, keeps the state and records who asked. Messages in
the mailbox are untrusted: the worker logs and drops what it cannot read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import bootsteps
from celery.utils.serialization import jsonify
from celery.worker import consumer as stock_consumer
from celery.worker.consumer import control
from celery.worker.control import Panel
from celery.worker.pidbox import Pidbox
from kombu.utils.encoding import safe_repr
from kombu.utils.url import maybe_sanitize_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

logger = logging.getLogger(__name__)

Command = Callable[..., object]

# Under every name that clients use. `enable_events` and `heartbeat` only send events.
ALLOWED_COMMANDS = (
    "active",
    "active_queues",
    "clock",
    "dump_active",
    "dump_reserved",
    "dump_revoked",
    "dump_schedule",
    "enable_events",
    "heartbeat",
    "ping",
    "query_task",
    "registered",
    "reserved",
    "revoked",
    "scheduled",
    "stats",
)
REFUSAL_MESSAGE = (
    "Refused '{}': remote control only inspects workers. Cancel an execution with PUT /api/v1/executions/{{id}}/cancel,"
    " drain a worker with POST /api/v1/workers/{{id}}/drain."
)


class InspectionCommands(dict[str, Command]):
    def __missing__(self, name: str) -> Command:
        return partial(_refuse, name)


class Mailbox(Pidbox):
    def __init__(self, consumer: Any) -> None:
        super().__init__(consumer)
        allowed = {name: Panel.data[name] for name in ALLOWED_COMMANDS}
        self.node.handlers = InspectionCommands(
            allowed | {"conf": show_conf, "dump_conf": show_conf, "hello": reply_to_hello}
        )

    def on_message(self, body: object, message: object) -> None:
        try:
            self.node.handle_message(_parse_message(body))
        except (RedisConnectionError, RedisTimeoutError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - a message must not end the worker
            logger.warning("Dropped a remote control message: %s: %.200s", type(error).__name__, error)


class Control(control.Control):
    """Celery's step of the consumer, with our mailbox instead of its own."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        bootsteps.StartStopStep.__init__(self, consumer, **options)
        self.box = Mailbox(consumer)

    def start(self, parent: Any) -> None:
        self.box.start(parent)

    def stop(self, parent: Any) -> None:
        self.box.stop(parent)

    def shutdown(self, parent: Any) -> None:
        self.box.shutdown(parent)


class Blueprint(stock_consumer.Consumer.Blueprint):  # type: ignore[misc,valid-type]  # its stub is a variable
    default_steps = [
        "workers.celery.remote_control:Control" if step == "celery.worker.consumer.control:Control" else step
        for step in stock_consumer.Consumer.Blueprint.default_steps
    ]


def show_conf(state: Any, **_: object) -> object:
    """Celery's settings. The stock command adds all of Django's, and the password in the address of Redis."""
    settings = {
        key: maybe_sanitize_url(value) if isinstance(value, str) else value
        for key, value in state.app.conf.table().items()
        if key.startswith("CELERY_")
    }
    return jsonify(settings, unknown_type_filter=safe_repr)


def reply_to_hello(state: Any, from_node: str, **_: object) -> object:
    """Answer a worker that starts. The stock command adds the sender's list of revoked tasks to its own."""
    return {"revoked": {}, "clock": state.app.clock.forward()}


def _refuse(name: str, state: object, **_: object) -> object:
    logger.warning("Refused remote control command %.100r", name)
    return {"error": REFUSAL_MESSAGE.format(name[:100])}


def _parse_message(body: object) -> dict[str, object]:
    """The fields of a control message that the worker uses; raises for any other shape.

    `pattern` is refused: it addresses workers by a regular expression, which can be made to take for ever.
    """
    if not isinstance(body, dict):
        raise TypeError("it is not an object")
    fields = {name: body.get(name) for name in ("method", "arguments", "destination", "reply_to", "ticket")}
    match fields | {"pattern": body.get("pattern")}:
        case {
            "method": str(),
            "arguments": None | dict(),
            "destination": None | list(),
            "reply_to": None | {"exchange": str(), "routing_key": str()},
            "ticket": None | str(),
            "pattern": None | "",
        }:
            return fields
    raise TypeError("its fields are not those of a control message")
