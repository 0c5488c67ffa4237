"""A log as server-sent events, across attempts, until the execution ends.

Invariant: the execution is read before its log, so a finished execution's log is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from rest_framework.renderers import JSONRenderer

from jobs.api.framework.event_stream import format_event
from jobs.api.resources.executions.execution_status import format_end_event, parse_representation
from jobs.api.resources.representations import LogChunkOutput
from jobs.domain.worker_protocol import Chunk
from jobs.logs.archive_reading import read_archived
from jobs.logs.store import STREAMED_PAGE_BYTES, read_live_page, take_first_page

EVENT_ID_PATTERN = re.compile(r"(\d{1,9}):(\d{1,9})", re.ASCII)


@dataclass
class LogReader:
    """Position of one follower in a log."""

    execution_id: UUID
    read_status: Callable[[], bytes]
    attempt: int | None  # None: the latest
    after: int
    stream: str | None
    only_this_attempt: bool
    # Rest of an archived log, kept between polls: seeking would read everything before the position again.
    _archived: Iterator[Chunk] = field(default=iter(()), init=False)

    def resume(self, event_id: str) -> None:
        """Continue after the event of this id; ignore a malformed id."""
        match = EVENT_ID_PATTERN.fullmatch(event_id)
        if match is not None and (not self.only_this_attempt or int(match[1]) == self.attempt):
            self.attempt, self.after = int(match[1]), int(match[2])

    def poll(self) -> tuple[list[bytes], bool]:
        body = self.read_status()
        execution = parse_representation(body)
        latest, ended = int(execution["attempt"]), execution["ended_at"] is not None
        self.attempt = self.attempt or latest or None
        while self.attempt is not None:
            chunks, attempt_ended = self._read(self.attempt)
            if chunks:
                self.after = chunks[-1].sequence
                return [self._event(chunk) for chunk in chunks], True
            if self.only_this_attempt or self.attempt >= latest:
                ended = ended or (self.only_this_attempt and attempt_ended)
                break
            self.attempt, self.after = self.attempt + 1, -1
        return [format_end_event(body)] if ended else [], not ended

    def _read(self, attempt: int) -> tuple[Sequence[Chunk], bool]:
        """Return the next chunks, and whether the attempt has ended."""
        if chunks := take_first_page(self._archived, STREAMED_PAGE_BYTES):
            return chunks, True
        page = read_live_page(
            self.execution_id, attempt, after=self.after, stream=self.stream, max_bytes=STREAMED_PAGE_BYTES
        )
        if page.chunks or not page.status.ended:
            return page.chunks, page.status.ended
        self._archived = read_archived(self.execution_id, attempt, after=self.after, stream=self.stream)
        return take_first_page(self._archived, STREAMED_PAGE_BYTES), True

    def _event(self, chunk: Chunk) -> bytes:
        data = {"attempt": self.attempt, **LogChunkOutput(represent_chunk(chunk)).data}
        return format_event("log", JSONRenderer().render(data), f"{self.attempt}:{chunk.sequence}")


def represent_chunk(chunk: Chunk) -> dict[str, object]:
    return {
        "sequence": chunk.sequence,
        "at": chunk.logged_at,
        "stream": chunk.stream,
        "text": chunk.data.decode("utf-8", "replace"),
    }
