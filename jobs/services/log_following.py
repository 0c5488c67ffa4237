"""What comes next of a log, for somebody who waits for it."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from jobs.services.following import await_news
from jobs.services.logs import Page, read_page


def await_page(
    execution_id: UUID, attempt: int | None, *, after: int = -1, stream: str | None = None, seconds: float
) -> Page:
    """As `read_page`, but an empty page of an attempt that goes on comes only when the time is over."""
    look = partial(read_page, execution_id, attempt, after=after, stream=stream)
    return await_news(execution_id, look, _says_something, seconds=seconds)


def _says_something(page: Page) -> bool:
    return bool(page.chunks) or page.standing.ended
