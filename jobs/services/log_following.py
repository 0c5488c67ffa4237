"""What comes next of a log, for somebody who waits for it.

A wake-up through Redis ends the wait at once; without Redis a look at the database does, a moment later. However many
follow, only so many questions wait in a process; the others are answered at once, so that the API never starves.
"""

from __future__ import annotations

import threading
import time
from functools import lru_cache
from uuid import UUID

from django.conf import settings

from jobs import conf
from jobs.services.database import give_back
from jobs.services.logs import Page, read_page
from jobs.wakeups import WakeListener, log_channel


def await_page(
    execution_id: UUID, attempt: int | None, *, after: int = -1, stream: str | None = None, seconds: float
) -> Page:
    """As `read_page`, but an empty page of an attempt that goes on comes only when the time is over."""

    def look() -> Page:
        page = read_page(execution_id, attempt, after=after, stream=stream)
        give_back()
        return page

    deadline = time.monotonic() + seconds
    page = look()
    if _says_something(page) or seconds <= 0 or not _waiting().acquire(blocking=False):
        return page
    listener = WakeListener(settings.PUNCTUAL_REDIS_URL, channel=log_channel(execution_id))
    try:
        # Listening begins before the look that follows: nothing falls between them.
        listener.wait(0)
        while True:
            page = look()
            left = deadline - time.monotonic()
            if _says_something(page) or left <= 0:
                return page
            listener.wait(min(left, conf.FOLLOW_LOOK_SECONDS))
    finally:
        _waiting().release()
        listener.close()


def _says_something(page: Page) -> bool:
    return bool(page.chunks) or page.standing.ended


@lru_cache(maxsize=1)
def _waiting() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings.PUNCTUAL_WAITING_FOLLOWERS)
