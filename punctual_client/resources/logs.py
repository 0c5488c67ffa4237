"""Logs of executions: read, follow and search them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from punctual_client.json_fields import JsonObject, as_objects, int_field, text_field
from punctual_client.resources.base import MAX_PAGE_SIZE, ApiCalls, filter_fields, path_segment

MAX_SEARCH_SECONDS = 20.0


@dataclass(frozen=True)
class LogChunk:
    sequence: int
    stream: str
    text: str

    @classmethod
    def parse(cls, data: JsonObject) -> LogChunk:
        return cls(
            sequence=int_field(data, "sequence"), stream=text_field(data, "stream"), text=text_field(data, "text")
        )


@dataclass(frozen=True)
class LogPage:
    chunks: list[LogChunk]
    ended: bool  # nothing more will be written: the first empty page is the last one

    @classmethod
    def parse(cls, data: JsonObject) -> LogPage:
        chunks = [LogChunk.parse(item) for item in as_objects(data.get("results"))]
        return cls(chunks, ended=data.get("ended") is True)


@dataclass(frozen=True)
class LogMatch:
    """A log line that matches a search; `matches` are the character ranges to highlight."""

    execution_id: str
    job_name: str
    attempt: int
    stream: str
    at: str
    line: str
    matches: tuple[tuple[int, int], ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> LogMatch:
        ranges = data.get("matches")
        pairs = [pair for pair in ranges if isinstance(pair, list)] if isinstance(ranges, list) else []
        return cls(
            execution_id=text_field(data, "execution_id"),
            job_name=text_field(data, "job_name"),
            attempt=int_field(data, "attempt"),
            stream=text_field(data, "stream"),
            at=text_field(data, "at"),
            line=text_field(data, "line"),
            matches=tuple((int(str(pair[0])), int(str(pair[1]))) for pair in pairs if len(pair) == 2),
            raw=data,
        )


@dataclass(frozen=True)
class LogSearchResult:
    """`complete`: all logs were searched, or the limit was reached."""

    lines: tuple[LogMatch, ...]
    complete: bool


class LogCalls(ApiCalls):
    @contextmanager
    def logs(self, execution_id: str, *, attempt: int | None = None) -> Iterator[Iterator[bytes]]:
        """Open the stored log of an execution as pieces of bytes."""
        parameters: dict[str, str | int] = {} if attempt is None else {"attempt": attempt}
        with self._transport.stream_bytes(f"executions/{path_segment(execution_id)}/logs", parameters) as pieces:
            yield pieces

    def log_page(self, execution_id: str, *, attempt: int, after: int | None, wait_seconds: int = 0) -> LogPage:
        """Return the next chunks of an attempt's log; the server may wait for some to be written."""
        parameters: dict[str, str | int] = {"format": "json", "attempt": attempt}
        if after is not None:
            parameters["after"] = after
        if wait_seconds:
            parameters["wait"] = wait_seconds
        return LogPage.parse(self._transport.get(f"executions/{path_segment(execution_id)}/logs", parameters))

    def search_logs(
        self,
        query: str,
        *,
        mode: str,
        job_id: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        stream: str | None = None,
        limit: int = 50,
    ) -> LogSearchResult:
        """Search page by page until `limit` lines are found or the search takes too long."""
        filters = filter_fields(job_id=job_id, to=to, stream=stream, from_=from_)
        parameters: dict[str, str | int] = {"q": query, "mode": mode, "limit": min(limit, MAX_PAGE_SIZE), **filters}
        lines: list[LogMatch] = []
        deadline = time.monotonic() + MAX_SEARCH_SECONDS
        while True:
            answer = self._transport.get("logs/search", parameters)
            lines += [LogMatch.parse(item) for item in as_objects(answer.get("results"))]
            next_page = answer.get("next")
            complete = len(lines) >= limit or not isinstance(next_page, str)
            if complete or time.monotonic() >= deadline:
                return LogSearchResult(tuple(lines[:limit]), complete)
            parameters = dict(parse_qsl(urlsplit(str(next_page)).query))
