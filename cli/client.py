"""A typed client of the REST API, for the commands and for any Python program.

One method a verb of the API; every call is bounded in time, and waiting is polling with a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, quote, urlsplit
from uuid import uuid4

from cli.answers import JsonObject, as_objects
from cli.errors import ServerFailureError, WaitTimeoutError
from cli.records import (
    Artifact,
    Calendar,
    Execution,
    FoundLine,
    FoundLines,
    Instant,
    Job,
    KeptArtifact,
    LogPage,
    Output,
    Queue,
    Secret,
    StorageUse,
    Upload,
    Worker,
)
from cli.transport import Parameters, Transport, pieces_of

POLL_SECONDS = 0.25
LARGEST_PAGE = 100
LONGEST_SEARCH_SECONDS = 20.0


class Client:
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._transport = Transport(url, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    # jobs

    def submit_job(self, specification: JsonObject) -> Job:
        return Job.parse(self._transport.send("POST", "jobs", specification, key=str(uuid4())))

    def submit_jobs(self, specifications: Sequence[JsonObject]) -> list[str]:
        """All of them or none, at most 1,000; returns their ids, in order."""
        answer = self._transport.send("POST", "jobs/bulk", {"jobs": list(specifications)}, key=str(uuid4()))
        return [str(item["id"]) for item in as_objects(answer.get("results"))]

    def job(self, job_id: str) -> Job:
        return Job.parse(self._transport.get(f"jobs/{_segment(job_id)}"))

    def jobs(self, *, status: str | None = None, search: str | None = None, limit: int = 50) -> list[Job]:
        filters = _given(status=status, search=search)
        return [Job.parse(item) for item in self._listing("jobs", filters, limit)]

    def edit_job(self, job_id: str, changes: JsonObject) -> Job:
        return Job.parse(self._transport.send("PATCH", f"jobs/{_segment(job_id)}", changes))

    def delete_job(self, job_id: str) -> None:
        self._transport.send("DELETE", f"jobs/{_segment(job_id)}")

    def cancel_job(self, job_id: str) -> Job:
        return Job.parse(self._transport.send("PUT", f"jobs/{_segment(job_id)}/cancel"))

    def execute_job(self, job_id: str, *, worker_id: str | None = None) -> Execution:
        body = _given(worker_id=worker_id)
        path = f"jobs/{_segment(job_id)}/execute"
        return Execution.parse(self._transport.send("POST", path, body, key=str(uuid4())))

    def next_instants(self, job_id: str, *, count: int = 5) -> list[Instant]:
        answer = self._transport.get(f"jobs/{_segment(job_id)}/next", {"count": count})
        return [Instant.parse(item) for item in as_objects(answer.get("results"))]

    # calendars

    def calendars(self, *, limit: int = 50) -> list[Calendar]:
        return [Calendar.parse(item) for item in self._listing("calendars", {}, limit)]

    def calendar(self, calendar_id: str) -> Calendar:
        return Calendar.parse(self._transport.get(f"calendars/{_segment(calendar_id)}"))

    def create_calendar(self, name: str, dates: Sequence[str]) -> Calendar:
        return Calendar.parse(self._transport.send("POST", "calendars", {"name": name, "dates": list(dates)}))

    def edit_calendar(
        self, calendar_id: str, *, name: str | None = None, dates: Sequence[str] | None = None
    ) -> Calendar:
        changes: dict[str, object] = {} if name is None else {"name": name}
        if dates is not None:
            changes["dates"] = list(dates)
        return Calendar.parse(self._transport.send("PATCH", f"calendars/{_segment(calendar_id)}", changes))

    def delete_calendar(self, calendar_id: str) -> None:
        self._transport.send("DELETE", f"calendars/{_segment(calendar_id)}")

    # secrets

    def secrets(self, *, name: str | None = None, limit: int = 50) -> list[Secret]:
        return [Secret.parse(item) for item in self._listing("secrets", _given(name=name), limit)]

    def secret(self, secret_id: str) -> Secret:
        return Secret.parse(self._transport.get(f"secrets/{_segment(secret_id)}"))

    def create_secret(self, name: str, value: str) -> Secret:
        return Secret.parse(self._transport.send("POST", "secrets", {"name": name, "value": value}))

    def rotate_secret(self, secret_id: str, value: str) -> Secret:
        return Secret.parse(self._transport.send("PUT", f"secrets/{_segment(secret_id)}", {"value": value}))

    def delete_secret(self, secret_id: str) -> None:
        self._transport.send("DELETE", f"secrets/{_segment(secret_id)}")

    # executions

    def execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.get(f"executions/{_segment(execution_id)}"))

    def executions(self, *, job_id: str | None = None, status: str | None = None, limit: int = 50) -> list[Execution]:
        filters = _given(job_id=job_id, status=status)
        return [Execution.parse(item) for item in self._listing("executions", filters, limit)]

    def cancel_execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("PUT", f"executions/{_segment(execution_id)}/cancel"))

    def explain_execution(self, execution_id: str) -> JsonObject:
        return self._transport.get(f"executions/{_segment(execution_id)}/explain")

    def retry_execution(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"executions/{_segment(execution_id)}/retry"))

    def wait(self, execution_id: str, *, timeout_seconds: float) -> Execution:
        """The execution once it has ended."""
        deadline = time.monotonic() + timeout_seconds
        while not (execution := self.execution(execution_id)).has_ended:
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"The execution {execution_id} is still {execution.status} after {timeout_seconds:g} s."
                )
            time.sleep(POLL_SECONDS)
        return execution

    @contextmanager
    def logs(self, execution_id: str, *, attempt: int | None = None) -> Iterator[Iterator[bytes]]:
        """The log as it is stored, in pieces."""
        parameters: Parameters = {} if attempt is None else {"attempt": attempt}
        with self._transport.stream(f"executions/{_segment(execution_id)}/logs", parameters) as response:
            yield pieces_of(response)

    def log_page(self, execution_id: str, *, attempt: int, after: int | None, wait_seconds: int = 0) -> LogPage:
        """The next chunks of an attempt's log behind a sequence number; none there: the server may wait for some."""
        parameters: dict[str, str | int] = {"format": "json", "attempt": attempt}
        if after is not None:
            parameters["after"] = after
        if wait_seconds:
            parameters["wait"] = wait_seconds
        return LogPage.parse(self._transport.get(f"executions/{_segment(execution_id)}/logs", parameters))

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
        given = _given(job_id=job_id, to=to, stream=stream, **{"from": from_})
        parameters: Parameters = {"q": query, "mode": mode, "limit": min(limit, LARGEST_PAGE), **given}
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

    def outputs(self, execution_id: str) -> list[Output]:
        answer = self._transport.get(f"executions/{_segment(execution_id)}/outputs")
        return [Output.parse(item) for item in as_objects(answer.get("results"))]

    def delete_outputs(self, execution_id: str) -> None:
        self._transport.send("DELETE", f"executions/{_segment(execution_id)}/outputs")

    @contextmanager
    def download(self, output: Output) -> Iterator[Iterator[bytes]]:
        with self._transport.download(output.url) as pieces:
            yield pieces

    # dead letters

    def dead_letters(self, *, job_id: str | None = None, status: str | None = None, limit: int = 50) -> list[Execution]:
        filters = _given(job_id=job_id, status=status)
        return [Execution.parse(item) for item in self._listing("dead-letters", filters, limit)]

    def redrive(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"dead-letters/{_segment(execution_id)}/redrive"))

    def dismiss(self, execution_id: str) -> Execution:
        return Execution.parse(self._transport.send("POST", f"dead-letters/{_segment(execution_id)}/dismiss"))

    # artifacts and workers

    def create_artifact(self, *, sha256: str, size: int) -> Artifact:
        return Artifact.parse(self._transport.send("POST", "artifacts", {"sha256": sha256, "size": size}))

    def upload_artifact(self, upload: Upload, content: Iterable[bytes], *, size: int) -> None:
        # A length of its own: storage refuses the chunked encoding that an iterator would get.
        given = {name: value for name, value in upload.headers if name.lower() != "content-length"}
        headers = {**given, "Content-Length": str(size)}
        self._transport.upload(upload.method, upload.url, headers, content)

    def artifacts(self, *, limit: int = 50) -> list[KeptArtifact]:
        return [KeptArtifact.parse(item) for item in self._listing("artifacts", {}, limit)]

    def delete_artifact(self, artifact_id: str) -> None:
        self._transport.send("DELETE", f"artifacts/{_segment(artifact_id)}")

    def storage_use(self) -> StorageUse:
        return StorageUse.parse(self._transport.get("usage"))

    def complete_artifact(self, artifact_id: str) -> Artifact:
        return Artifact.parse(self._transport.send("POST", f"artifacts/{_segment(artifact_id)}/complete"))

    def workers(self, *, limit: int = 100) -> list[Worker]:
        return [Worker.parse(item) for item in self._listing("workers", {}, limit)]

    def queues(self, *, limit: int = 500) -> list[Queue]:
        return [Queue.parse(item) for item in self._listing("queues", {}, limit)]

    def audit_firings(self, *, from_: str, to: str | None = None, job_id: str | None = None) -> JsonObject:
        return self._transport.get("audit/firings", {"from": from_, **_given(to=to, job_id=job_id)})

    def _listing(self, path: str, filters: Mapping[str, str], limit: int) -> Iterator[JsonObject]:
        return islice(self._pages(path, {**filters, "limit": min(limit, LARGEST_PAGE)}), limit)

    def _pages(self, path: str, parameters: Parameters) -> Iterator[JsonObject]:
        while True:
            answer = self._transport.get(path, parameters)
            yield from as_objects(answer.get("results"))
            following = answer.get("next")
            if not following:
                return
            if not isinstance(following, str):
                raise ServerFailureError("The server's answer names its next page in a way that is not known.")
            # Only the query: behind a proxy the server may not know the address it is reached under.
            parameters = dict(parse_qsl(urlsplit(following).query))


def _given(**filters: str | None) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value is not None}


def _segment(identifier: str) -> str:
    # An id that is typed by hand must stay one segment of the path.
    return quote(identifier, safe="")
