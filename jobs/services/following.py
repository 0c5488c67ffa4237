"""A place among those who wait for something to happen to an execution.

Whoever waits takes a thread of web. However many want to, only so many do so in a process, and only some of them for
one user; the others are told how things stand and ask again, so that neither the API starves nor those who ask less. A
wake-up through Redis ends a wait at once; without Redis a look at the database does, a moment later.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from django.conf import settings

from jobs import conf
from jobs.services.acting import present_actor
from jobs.services.database import give_back
from jobs.wakeups import WakeListener, log_channel

Answer = TypeVar("Answer")


class Seats:
    """So many there are, and so many of them one user may have; who is nobody's counts as one as well."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._taken: Counter[int | None] = Counter()
        self._lock = threading.Lock()

    @property
    def free(self) -> int:
        with self._lock:
            return self._total - self._taken.total()

    def take(self, user_id: int | None) -> bool:
        with self._lock:
            if self._taken.total() >= self._total or self._taken[user_id] >= self._each:
                return False
            self._taken[user_id] += 1
            return True

    def give_back(self, user_id: int | None) -> None:
        with self._lock:
            self._taken[user_id] -= 1
            if not self._taken[user_id]:
                del self._taken[user_id]


class Seat:
    """Listening begins with it: what happens after it was taken ends the next wait."""

    def __init__(self, execution_id: UUID, user_id: int | None) -> None:
        self._user_id = user_id
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
            seats().give_back(self._user_id)
            listener.close()


def take_seat(execution_id: UUID) -> Seat | None:
    """None: all are taken, or all that the user may have. Whoever gets one has to leave it."""
    user_id = present_actor().user_id
    return Seat(execution_id, user_id) if seats().take(user_id) else None


def await_news(
    execution_id: UUID, look: Callable[[], Answer], is_news: Callable[[Answer], bool], *, seconds: float
) -> Answer:
    """What is seen once it is news, or when the time is over, or at once if no seat is to be had."""
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
def seats() -> Seats:
    return Seats(settings.PUNCTUAL_WAITING_FOLLOWERS, settings.PUNCTUAL_WAITING_FOLLOWERS_EACH)
