"""Sends Celery's task events in batches, a few times a second.

It is a step of the consumer, because a new connection has a new event dispatcher.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps

FLUSH_INTERVAL_SECONDS = 0.1


class EventFlushing(bootsteps.StartStopStep):
    requires = ("celery.worker.consumer.events:Events",)

    def start(self, parent: Any) -> None:
        dispatcher = parent.event_dispatcher
        if parent.hub is None or dispatcher is None:
            return
        # The stock callback makes the event loop flush at once, about once per event.
        dispatcher.on_send_buffered = None
        self._entry = parent.timer.call_repeatedly(FLUSH_INTERVAL_SECONDS, dispatcher.flush)

    def stop(self, parent: Any) -> None:
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()

    _entry: Any = None
