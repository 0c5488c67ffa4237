"""Runs each shared look once per interval while requests wait for it, and wakes those that it finds."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from functools import partial

from django.db import connections

from jobs.db.waiting import SharedLook
from scheduler_project.web.lanes import Lane
from scheduler_project.web.wakeup_hub import WakeupHub

logger = logging.getLogger(__name__)


class SharedLooks:
    def __init__(self, hub: WakeupHub, lane: Lane) -> None:
        self._hub = hub
        self._lane = lane
        self._waiters: Counter[SharedLook] = Counter()
        self._tasks: dict[SharedLook, asyncio.Task[None]] = {}

    def join(self, look: SharedLook) -> None:
        """Count a waiter; the look runs until the last one has left."""
        self._waiters[look] += 1
        if look not in self._tasks:
            self._tasks[look] = asyncio.create_task(self._run(look))

    def leave(self, look: SharedLook) -> None:
        self._waiters[look] -= 1

    async def _run(self, look: SharedLook) -> None:
        try:
            while self._waiters[look] > 0:
                await asyncio.sleep(look.interval_seconds)
                try:
                    changed = await self._lane.run(partial(_find_changed, look))
                except Exception as error:  # noqa: BLE001 - any error of the database; the next look retries
                    logger.warning("Cannot read for waiting requests; trying again in a moment: %s", error)
                else:
                    for channel in changed:
                        self._hub.wake(channel.encode())
        finally:
            del self._tasks[look]


def _find_changed(look: SharedLook) -> Collection[str]:
    try:
        return look.find_changed()
    finally:
        connections.close_all()
