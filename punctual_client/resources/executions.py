"""Executions: list, cancel, retry and explain them, with their attempts, events and dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field

from punctual_client.json_fields import (
    JsonObject,
    as_objects,
    int_field,
    optional_int_field,
    optional_text_field,
    text_field,
)
from punctual_client.resources.base import ApiCalls, filter_fields, path_segment

POLL_INTERVAL_SECONDS = 0.25
MAX_POLL_INTERVAL_SECONDS = 1.0
LONG_POLL_SECONDS = 20  # how long the server is asked to hold an answer
DEFAULT_WAIT_SECONDS = 86_400.0
TERMINAL_STATUSES = frozenset({"succeeded", "failed", "timed_out", "cancelled", "missed", "skipped"})


@dataclass(frozen=True)
class Execution:
    id: str
    job_id: str
    job_name: str
    status: str
    attempt: int
    exit_code: int | None
    signal: int | None
    reason: str | None
    scheduled_for: str | None
    started_at: str | None
    ended_at: str | None
    progress: str  # as the program last reported it; empty: never
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Execution:
        return cls(
            id=text_field(data, "id"),
            job_id=text_field(data, "job_id"),
            job_name=optional_text_field(data, "job_name") or "",
            status=text_field(data, "status"),
            attempt=int_field(data, "attempt"),
            exit_code=optional_int_field(data, "exit_code"),
            signal=optional_int_field(data, "signal"),
            reason=optional_text_field(data, "reason"),
            scheduled_for=optional_text_field(data, "scheduled_for"),
            started_at=optional_text_field(data, "started_at"),
            ended_at=optional_text_field(data, "ended_at"),
            progress=_format_progress(data.get("progress")),
            raw=data,
        )

    @property
    def has_ended(self) -> bool:
        return self.status in TERMINAL_STATUSES

    @property
    def exit_description(self) -> str:
        if self.exit_code is not None:
            return str(self.exit_code)
        return "" if self.signal is None else f"signal {self.signal}"


def _format_progress(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    percent, message = value.get("percent"), value.get("message")
    percentage = f"{percent:g} %" if isinstance(percent, int | float) else ""
    return " ".join(part for part in (percentage, message) if isinstance(part, str) and part)


@dataclass(frozen=True)
class Attempt:
    number: int
    worker_id: str
    placed_at: str | None
    started_at: str | None
    ended_at: str | None
    reason: str | None
    exit_code: int | None
    signal: int | None
    problems: tuple[str, ...]  # why it failed, or which of its output files were not kept
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Attempt:
        return cls(
            number=int_field(data, "number"),
            worker_id=optional_text_field(data, "worker_id") or "",
            placed_at=optional_text_field(data, "placed_at"),
            started_at=optional_text_field(data, "started_at"),
            ended_at=optional_text_field(data, "ended_at"),
            reason=optional_text_field(data, "reason"),
            exit_code=optional_int_field(data, "exit_code"),
            signal=optional_int_field(data, "signal"),
            problems=tuple(line for line in (optional_text_field(data, "error") or "").split("\n") if line),
            raw=data,
        )


@dataclass(frozen=True)
class ExecutionEvent:
    """An event such as a retry or a lost worker; `details` are its fields, such as who caused it."""

    name: str
    at: str
    details: tuple[tuple[str, str], ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> ExecutionEvent:
        detail = data.get("detail")
        fields = detail if isinstance(detail, dict) else {}
        details = tuple((str(key), str(value)) for key, value in fields.items() if value not in (None, ""))
        return cls(name=text_field(data, "name"), at=text_field(data, "created_at"), details=details, raw=data)


class ExecutionCalls(ApiCalls):
    def execution(self, execution_id: str, *, wait_seconds: int = 0) -> Execution:
        """Return an execution; the server may hold the answer until it has ended or `wait_seconds` are over."""
        parameters: dict[str, str | int] = {"wait": wait_seconds} if wait_seconds else {}
        return Execution.parse(self._transport.get(f"executions/{path_segment(execution_id)}", parameters))

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
        filters = filter_fields(
            job_id=job_id,
            worker_id=worker_id,
            status=status,
            queue=queue,
            owner=owner,
            team=team,
            scheduled_from=scheduled_from,
            scheduled_to=scheduled_to,
        )
        return [Execution.parse(item) for item in self._list("executions", filters, limit)]

    def cancel_execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("PUT", f"executions/{path_segment(execution_id)}/cancel"))

    def retry_execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"executions/{path_segment(execution_id)}/retry"))

    def explain_execution(self, execution_id: str) -> JsonObject:
        return self._transport.get(f"executions/{path_segment(execution_id)}/explain")

    def attempts(self, execution_id: str) -> list[Attempt]:
        """Return the attempts of an execution, oldest first."""
        answer = self._transport.get(f"executions/{path_segment(execution_id)}/attempts")
        return [Attempt.parse(item) for item in as_objects(answer.get("results"))]

    def events(self, execution_id: str) -> list[ExecutionEvent]:
        """Return the unusual events of an execution, oldest first."""
        answer = self._transport.get(f"executions/{path_segment(execution_id)}/events")
        return [ExecutionEvent.parse(item) for item in as_objects(answer.get("results"))]

    def dead_letters(self, *, job_id: str | None = None, status: str | None = None, limit: int = 50) -> list[Execution]:
        filters = filter_fields(job_id=job_id, status=status)
        return [Execution.parse(item) for item in self._list("dead-letters", filters, limit)]

    def redrive(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"dead-letters/{path_segment(execution_id)}/redrive"))

    def dismiss(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"dead-letters/{path_segment(execution_id)}/dismiss"))
