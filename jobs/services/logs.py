"""What programs wrote: appended by the worker that holds the attempt, read by whoever may see the execution.

However long a log is, only a page of it is in memory, and whoever reads slowly holds no connection meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import takewhile
from uuid import UUID

from jobs import conf, sql, wakeups
from jobs.errors import NotFound, StaleAttempt
from jobs.protocol import Chunk, Hold, Progress
from jobs.services.archived_logs import read_archived
from jobs.services.database import give_back

PAGE_CHUNKS = 1000
PAGE_BYTES = 1024 * 1024
LAST = 2**31  # after every sequence
# A batch of chunks may be a megabyte.
SECONDS = 10.0
# From here on writing bytes into a statement costs more than a round trip.
LARGE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one attempt's log, before any of it is read."""

    attempt: int  # 0: there is none yet
    day: date | None  # whose partition it lies in; None: nothing can have been written
    truncated: bool
    ended: bool  # nothing is added to it any more


@dataclass(frozen=True, slots=True)
class Page:
    """Chunks in order. An attempt that has ended and whose page is empty has no more to come."""

    standing: Standing
    chunks: Sequence[Chunk]


def append_chunks(
    hold: Hold, chunks: Sequence[Chunk], progress: Progress | None = None, *, capped: bool = True
) -> None:
    """`capped`: the worker leaves out what is too much and is believed; else it is left out, and marked, here.

    How far the run says it is goes along in the same round trip; a run that never says costs nothing for it.
    """
    if not chunks and progress is None:
        return
    parameters = hold.parameters() | {
        "sequences": [c.sequence for c in chunks],
        "streams": [c.stream for c in chunks],
        "times": [c.logged_at for c in chunks],
        "data": [c.data for c in chunks],
    }
    statements = []
    if progress is not None:
        # First, as whoever ends an attempt locks the execution before the attempt, too.
        statements.append("report_progress")
        parameters |= {"percent": progress.percent, "message": progress.message}
    if chunks:
        statements.append("append_log" if capped else "append_bounded_log")
        parameters |= {"max_bytes": conf.MAX_LOG_BYTES, "max_chunks": conf.MAX_LOG_CHUNKS}
    large = sum(len(c.data) for c in chunks) >= LARGE_BYTES
    execute = sql.execute_large if large else sql.execute_together
    written = execute(statements, parameters, within=SECONDS)
    if not written:
        raise StaleAttempt
    if chunks:
        wakeups.wake_followers(hold.execution_id)


def read_chunks(
    execution_id: UUID, attempt: int | None, *, after: int = -1, stream: str | None = None
) -> Iterator[Chunk]:
    """The whole log of one attempt, by default the latest, a page of it in memory at a time."""
    standing = read_standing(execution_id, attempt)
    while chunks := _read_following(execution_id, standing, after, stream):
        give_back()
        yield from chunks
        after = chunks[-1].sequence
    # Whether it had ended when reading began says nothing of how it is now.
    yield from read_archived(execution_id, standing.attempt, after=after, stream=stream)


def read_page(execution_id: UUID, attempt: int | None, *, after: int = -1, stream: str | None = None) -> Page:
    """What follows a sequence; without an attempt, of the latest."""
    # In this order: what an attempt wrote before it ended is in the page that says so.
    standing = read_standing(execution_id, attempt)
    chunks = _read_following(execution_id, standing, after, stream)
    if not chunks and standing.ended:
        chunks = _first_of(read_archived(execution_id, standing.attempt, after=after, stream=stream))
    return Page(standing, chunks)


def read_tail(
    execution_id: UUID, attempt: int | None, *, before: int = LAST, stream: str | None = None, max_bytes: int
) -> Page:
    """What precedes a sequence, by default the end of all that there is."""
    standing = read_standing(execution_id, attempt)
    wanted = {"before": before, "stream": stream, "max_bytes": max_bytes}
    chunks = _read("read_log_before", execution_id, standing, wanted)
    if not chunks and standing.ended:
        archived = read_archived(execution_id, standing.attempt, stream=stream)
        chunks = _last_of(takewhile(lambda chunk: chunk.sequence < before, archived), max_bytes)
    return Page(standing, chunks)


def read_standing(execution_id: UUID, attempt: int | None) -> Standing:
    found = sql.fetch("log_standing", {"execution_id": execution_id, "attempt": attempt}, Standing, within=SECONDS)
    if not found:
        raise NotFound
    return found[0]


def _read_following(execution_id: UUID, standing: Standing, after: int, stream: str | None) -> list[Chunk]:
    return _read("read_log", execution_id, standing, {"after": after, "stream": stream, "max_bytes": PAGE_BYTES})


def _first_of(chunks: Iterable[Chunk]) -> list[Chunk]:
    """A page, as the database would cut it."""
    page, size = list[Chunk](), 0
    for chunk in chunks:
        if size >= PAGE_BYTES or len(page) == PAGE_CHUNKS:
            break
        page.append(chunk)
        size += len(chunk.data)
    return page


def _last_of(chunks: Iterable[Chunk], max_bytes: int) -> list[Chunk]:
    page, size = deque[Chunk](), 0
    for chunk in chunks:
        page.append(chunk)
        size += len(chunk.data)
        while size - len(page[0].data) >= max_bytes or len(page) > PAGE_CHUNKS:
            size -= len(page.popleft().data)
    return list(page)


def _read(name: str, execution_id: UUID, standing: Standing, wanted: Mapping[str, object]) -> list[Chunk]:
    if standing.day is None:
        return []
    of_log = {"day": standing.day, "execution_id": execution_id, "attempt": standing.attempt}
    return sql.fetch(name, {**of_log, **wanted, "max_chunks": PAGE_CHUNKS}, Chunk, within=SECONDS)
