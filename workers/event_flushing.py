"""Sends the events of runs, which Flower shows, a few times a second instead of one by one.

It is a step of the consumer: a new connection has a new dispatcher.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps

FLUSH_SECONDS = 0.1


class EventFlushing(bootsteps.StartStopStep):
    requires = ("celery.worker.consumer.events:Events",)

    def start(self, parent: Any) -> None:
        dispatcher = parent.event_dispatcher
        if parent.hub is None or dispatcher is None:
            return
        # It would have the event loop flush at once, that is, about once for every event.
        dispatcher.on_send_buffered = None
        self._entry = parent.timer.call_repeatedly(FLUSH_SECONDS, dispatcher.flush)

    def stop(self, parent: Any) -> None:
        entry, self._entry = self._entry, None
        if entry is not None:
            entry.cancel()

    _entry: Any = None
