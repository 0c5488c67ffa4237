"""The verbs about executions: what ran, what it wrote, and those that failed for good."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

from cli.answers import JsonObject, as_objects
from cli.attempt_records import Attempt, Event
from cli.calls import LARGEST_PAGE, Calls, given, segment
from cli.records import Execution, FoundLine, FoundLines, LogPage
from cli.transport import Parameters, pieces_of

LONGEST_SEARCH_SECONDS = 20.0


class ExecutionCalls(Calls):
    def execution(self, execution_id: str, *, wait_seconds: int = 0) -> Execution:
        """As it stands; the server may wait so long for its end."""
        parameters: Parameters = {"wait": wait_seconds} if wait_seconds else {}
        return Execution.parse(self._transport.get(f"executions/{segment(execution_id)}", parameters))

    def executions(
        self,
        *,
        job_id: str | None = None,
        worker_id: str | None = None,
        status: str | None = None,
        queue: str | None = None,
        owner: str | None = None,
        team: str | None = None,
        scheduled_from: str | None = None,
        scheduled_to: str | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        filters = given(
            job_id=job_id,
            worker_id=worker_id,
            status=status,
            queue=queue,
            owner=owner,
            team=team,
            scheduled_from=scheduled_from,
            scheduled_to=scheduled_to,
        )
        return [Execution.parse(item) for item in self._listing("executions", filters, limit)]

    def cancel_execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("PUT", f"executions/{segment(execution_id)}/cancel"))

    def explain_execution(self, execution_id: str) -> JsonObject:
        return self._transport.get(f"executions/{segment(execution_id)}/explain")

    def attempts(self, execution_id: str) -> list[Attempt]:
        """Every time that a worker took it, the first one first."""
        answer = self._transport.get(f"executions/{segment(execution_id)}/attempts")
        return [Attempt.parse(item) for item in as_objects(answer.get("results"))]

    def events(self, execution_id: str) -> list[Event]:
        """What was not ordinary about it, the first first."""
        answer = self._transport.get(f"executions/{segment(execution_id)}/events")
        return [Event.parse(item) for item in as_objects(answer.get("results"))]

    def retry_execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"executions/{segment(execution_id)}/retry"))

    @contextmanager
    def logs(self, execution_id: str, *, attempt: int | None = None) -> Iterator[Iterator[bytes]]:
        """The log as it is stored, in pieces."""
        parameters: Parameters = {} if attempt is None else {"attempt": attempt}
        with self._transport.stream(f"executions/{segment(execution_id)}/logs", parameters) as response:
            yield pieces_of(response)

    def log_page(self, execution_id: str, *, attempt: int, after: int | None, wait_seconds: int = 0) -> LogPage:
        """The next chunks of an attempt's log behind a sequence number; none there: the server may wait for some."""
        parameters: dict[str, str | int] = {"format": "json", "attempt": attempt}
        if after is not None:
            parameters["after"] = after
        if wait_seconds:
            parameters["wait"] = wait_seconds
        return LogPage.parse(self._transport.get(f"executions/{segment(execution_id)}/logs", parameters))

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
    ) -> FoundLines:
        """As many lines as are wanted, or as are found before it has taken long: each request goes on from the last."""
        filters = given(job_id=job_id, to=to, stream=stream, **{"from": from_})
        parameters: Parameters = {"q": query, "mode": mode, "limit": min(limit, LARGEST_PAGE), **filters}
        lines: list[FoundLine] = []
        deadline = time.monotonic() + LONGEST_SEARCH_SECONDS
        while True:
            answer = self._transport.get("logs/search", parameters)
            lines += [FoundLine.parse(item) for item in as_objects(answer.get("results"))]
            following = answer.get("next")
            done = len(lines) >= limit or not isinstance(following, str)
            if done or time.monotonic() >= deadline:
                return FoundLines(tuple(lines[:limit]), done)
            parameters = dict(parse_qsl(urlsplit(str(following)).query))

    def dead_letters(self, *, job_id: str | None = None, status: str | None = None, limit: int = 50) -> list[Execution]:
        filters = given(job_id=job_id, status=status)
        return [Execution.parse(item) for item in self._listing("dead-letters", filters, limit)]

    def redrive(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"dead-letters/{segment(execution_id)}/redrive"))

    def dismiss(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"dead-letters/{segment(execution_id)}/dismiss"))
