"""A log as a stream of events, from one attempt to the next, until the execution has ended.

The execution is read before its log, so that nothing an ended one wrote is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from rest_framework.renderers import JSONRenderer

from jobs.api.event_stream import event
from jobs.api.execution_status import end_of, shown_in
from jobs.api.representations import LogChunkOutput
from jobs.protocol import Chunk
from jobs.services.logs import read_page

EVENT_ID = re.compile(r"(\d{1,9}):(\d{1,9})", re.ASCII)


@dataclass
class LogReader:
    """Where a follower is in the log."""

    execution_id: UUID
    read_status: Callable[[], bytes]
    attempt: int | None  # None: the latest, once there is one
    after: int
    stream: str | None
    only_this_attempt: bool

    def resume(self, event_id: str) -> None:
        """Goes on after that event; what is no id of ours says nothing."""
        found = EVENT_ID.fullmatch(event_id)
        if found is not None and (not self.only_this_attempt or int(found[1]) == self.attempt):
            self.attempt, self.after = int(found[1]), int(found[2])

    def look(self) -> tuple[list[bytes], bool]:
        body = self.read_status()
        shown = shown_in(body)
        latest, ended = int(shown["attempt"]), shown["ended_at"] is not None
        self.attempt = self.attempt or latest or None
        while self.attempt is not None:
            page = read_page(self.execution_id, self.attempt, after=self.after, stream=self.stream)
            if page.chunks:
                self.after = page.chunks[-1].sequence
                return [self._event(chunk) for chunk in page.chunks], True
            if self.only_this_attempt or self.attempt >= latest:
                ended = ended or (self.only_this_attempt and page.standing.ended)
                break
            self.attempt, self.after = self.attempt + 1, -1
        return [end_of(body)] if ended else [], not ended

    def _event(self, chunk: Chunk) -> bytes:
        shown = {"attempt": self.attempt, **LogChunkOutput(show_chunk(chunk)).data}
        return event("log", JSONRenderer().render(shown), f"{self.attempt}:{chunk.sequence}")


def show_chunk(chunk: Chunk) -> dict[str, object]:
    return {
        "sequence": chunk.sequence,
        "at": chunk.logged_at,
        "stream": chunk.stream,
        "text": chunk.data.decode("utf-8", "replace"),
    }
