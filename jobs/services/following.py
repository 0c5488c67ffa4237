"""A place among those who wait for something to happen to an execution.

Whoever waits takes a thread of web. However many want to, only so many do so in a process; the others are told how
things stand and ask again, so that the API never starves. A wake-up through Redis ends a wait at once; without Redis
a look at the database does, a moment later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from django.conf import settings

from jobs import conf
from jobs.services.database import give_back
from jobs.wakeups import WakeListener, log_channel

Answer = TypeVar("Answer")


class Seat:
    """Listening begins with it: what happens after it was taken ends the next wait."""

    def __init__(self, execution_id: UUID) -> None:
        self._listener: WakeListener | None = WakeListener(
            settings.PUNCTUAL_REDIS_URL, channel=log_channel(execution_id)
        )
        self._listener.wait(0)

    def wait(self, seconds: float) -> None:
        """Until there may be something new, and never long: what nobody was told of is looked for."""
        if self._listener is not None:
            # Who waits holds no connection meanwhile.
            give_back()
            self._listener.wait(min(seconds, conf.FOLLOW_LOOK_SECONDS))

    def leave(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            _seats().release()
            listener.close()


def take_seat(execution_id: UUID) -> Seat | None:
    """None: all are taken. Whoever gets one has to leave it."""
    return Seat(execution_id) if _seats().acquire(blocking=False) else None


def await_news(
    execution_id: UUID, look: Callable[[], Answer], is_news: Callable[[Answer], bool], *, seconds: float
) -> Answer:
    """What is seen once it is news, or when the time is over, or at once if all seats are taken."""
    deadline = time.monotonic() + seconds
    seen = look()
    seat = None if is_news(seen) or seconds <= 0 else take_seat(execution_id)
    if seat is None:
        return seen
    try:
        while True:
            seen = look()
            left = deadline - time.monotonic()
            if is_news(seen) or left <= 0:
                return seen
            seat.wait(left)
    finally:
        seat.leave()


@lru_cache(maxsize=1)
def _seats() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings.PUNCTUAL_WAITING_FOLLOWERS)
