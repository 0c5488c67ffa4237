"""Waiters: clients that wait for an execution to change.

A waiter costs a coroutine of web and reads the execution now and then. Each process limits their number, in total and
for each user; a client beyond the limit gets its response at once and asks again. A wake-up through Redis ends a wait
at once; without Redis the next read does, a moment later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

from django.conf import settings

from jobs.access.waiter_pool import WaiterPool
from jobs.audit.actor import current_actor
from jobs.db.waiting import Pause, Steps
from jobs.db.wakeups import log_channel
from jobs.domain import limits

Answer = TypeVar("Answer")


class Waiter:
    def __init__(self, execution_id: UUID, user_id: int | None) -> None:
        self._channel = log_channel(execution_id)
        self._user_id = user_id
        self._taken = True

    def listen(self) -> Pause:
        """Return the pause to yield before the first read: no change after it is missed."""
        return Pause(self._channel, 0)

    def pause(self, seconds: float) -> Pause:
        """Return a pause that a wake-up ends; never a long one, since Redis may lose a wake-up."""
        return Pause(self._channel, min(seconds, execution_waiter_pool().poll_seconds(limits.FOLLOW_POLL_SECONDS)))

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            execution_waiter_pool().release(self._user_id)


def acquire_waiter(execution_id: UUID) -> Waiter | None:
    """Return a waiter, which the caller must leave; None if the process or the user has too many."""
    user_id = current_actor().user_id
    return Waiter(execution_id, user_id) if execution_waiter_pool().acquire(user_id) else None


def await_change(
    execution_id: UUID, read: Callable[[], Answer], is_news: Callable[[Answer], bool], *, seconds: float
) -> Steps[Answer]:
    """Return what `read` returns: once it is news, when the time is up, or at once without a waiter."""
    deadline = time.monotonic() + seconds
    answer = read()
    waiter = None if is_news(answer) or seconds <= 0 else acquire_waiter(execution_id)
    if waiter is None:
        return answer
    try:
        yield waiter.listen()
        while True:
            answer = read()
            left = deadline - time.monotonic()
            if is_news(answer) or left <= 0:
                return answer
            yield waiter.pause(left)
    finally:
        waiter.leave()


@lru_cache(maxsize=1)
def execution_waiter_pool() -> WaiterPool:
    return WaiterPool(settings.PUNCTUAL_WAITING_FOLLOWERS, settings.PUNCTUAL_WAITING_FOLLOWERS_EACH)
