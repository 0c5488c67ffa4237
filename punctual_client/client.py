"""`Client`: every call of the REST API, plus submitting a file and waiting for an execution."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from punctual_client.config import load_config
from punctual_client.errors import NotConfiguredError, WaitTimeoutError
from punctual_client.programs import parse_runtime, prepare_inputs, prepare_program
from punctual_client.resources.artifacts import ArtifactCalls
from punctual_client.resources.audit import AuditCalls
from punctual_client.resources.calendars import CalendarCalls
from punctual_client.resources.executions import (
    DEFAULT_WAIT_SECONDS,
    LONG_POLL_SECONDS,
    MAX_POLL_INTERVAL_SECONDS,
    POLL_INTERVAL_SECONDS,
    Execution,
    ExecutionCalls,
)
from punctual_client.resources.jobs import Job, JobCalls
from punctual_client.resources.logs import LogCalls
from punctual_client.resources.outputs import OutputCalls
from punctual_client.resources.queues import QueueCalls
from punctual_client.resources.secrets import SecretCalls
from punctual_client.resources.teams import TeamCalls
from punctual_client.resources.tokens import TokenCalls
from punctual_client.resources.usage import UsageCalls
from punctual_client.resources.webhooks import WebhookCalls
from punctual_client.resources.workers import WorkerCalls
from punctual_client.transport import ProbeResult, Transport


class Client(
    JobCalls,
    ExecutionCalls,
    LogCalls,
    OutputCalls,
    ArtifactCalls,
    CalendarCalls,
    SecretCalls,
    WorkerCalls,
    QueueCalls,
    TeamCalls,
    TokenCalls,
    UsageCalls,
    AuditCalls,
    WebhookCalls,
):
    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout_seconds: float | None = None
    ) -> None:
        """Connect to a server; without an address and a token, to the one that the command line would use."""
        if url is None or token is None:
            if url is not None or token is not None:
                raise NotConfiguredError("An address and its token belong together: give both, or neither.")
            config = load_config(os.environ)
            url, token = config.url, config.token
        self.url = url
        self._transport = Transport(url, token, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    def submit(
        self,
        program: str | Path,
        *,
        name: str | None = None,
        runtime: str | None = None,
        stdin: str | Path | None = None,
        inputs: Mapping[str, str | Path] | None = None,
        **fields: object,
    ) -> Job:
        """Submit a file as a job; `inputs` maps the path at which the program finds a file to that file.

        Other fields (`schedules`, `args`, `env`, `retry` …) are sent unchanged: their shape is the API's.
        """
        path = Path(program)
        input_files = [(target, str(file)) for target, file in (inputs or {}).items()]
        chosen = None if runtime is None else parse_runtime(runtime)
        return self.submit_job(
            {
                "name": name or path.stem,
                **prepare_program(self, path, chosen),
                **prepare_inputs(self, None if stdin is None else Path(stdin), input_files),
                **fields,
            }
        )

    def wait(self, of: Job | Execution | str, *, timeout_seconds: float = DEFAULT_WAIT_SECONDS) -> Execution:
        """Return an execution, or the first one of a job, once it has ended.

        The server holds each answer for a while; when all its waiting slots are taken, this polls.
        """
        deadline = time.monotonic() + timeout_seconds
        if isinstance(of, Job):
            of = self.first_execution(of.id, deadline=deadline)
        execution_id = of if isinstance(of, str) else of.id
        interval = POLL_INTERVAL_SECONDS
        while True:
            polled_at = time.monotonic()
            wait = max(0, min(LONG_POLL_SECONDS, int(deadline - polled_at)))
            execution = self.execution(execution_id, wait_seconds=wait)
            if execution.has_ended:
                return execution
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"The execution {execution_id} is still {execution.status} after {timeout_seconds:g} s."
                )
            time.sleep(max(0.0, min(polled_at + interval, deadline) - time.monotonic()))
            interval = min(interval * 1.5, MAX_POLL_INTERVAL_SECONDS)

    def first_execution(self, job_id: str, *, deadline: float) -> Execution:
        """Return the first execution of a new job, once the server has created it."""
        while not (executions := self.executions(job_id=job_id, limit=100)):
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"The job {job_id} did not fire within the time limit for waiting.")
            time.sleep(POLL_INTERVAL_SECONDS)
        # Ids grow with time.
        return min(executions, key=lambda execution: execution.id)

    def log(self, execution: Execution | str, *, attempt: int | None = None) -> str:
        """Return a whole log; for long ones `logs` gives it in pieces."""
        with self.logs(execution if isinstance(execution, str) else execution.id, attempt=attempt) as pieces:
            return b"".join(pieces).decode("utf-8", errors="replace")

    def probe(self, path: str) -> ProbeResult:
        return self._transport.probe(path)
