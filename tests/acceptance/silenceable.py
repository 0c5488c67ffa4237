"""The worker's Celery application, with a consumer that SIGUSR2 makes deaf: it stays connected and consumes nothing."""

from __future__ import annotations

import signal
from typing import Any

from celery import bootsteps

from scheduler_project.celery import app

__all__ = ["app"]


class Silencer(bootsteps.StartStopStep):
    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, parent: Any) -> None:
        def silence(*_: object) -> None:
            for name in parent.app.amqp.queues.consume_from:
                parent.task_consumer.cancel_by_queue(name)

        signal.signal(signal.SIGUSR2, lambda *_: parent.call_soon(silence))


app.steps["consumer"].add(Silencer)
