"""A typed client of the REST API, for the commands and for any Python program.

One method a verb of the API, in the `*_calls` modules; every call is bounded in time, and waiting is polling
with a deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cli.audit_calls import AuditCalls
from cli.config import load_config
from cli.errors import NotConfiguredError, WaitTimeoutError
from cli.execution_calls import ExecutionCalls
from cli.fleet_calls import FleetCalls
from cli.job_calls import JobCalls
from cli.keeping_calls import KeepingCalls
from cli.programs import parse_runtime, prepare_given, prepare_program
from cli.records import Execution, Job
from cli.storage_calls import StorageCalls
from cli.team_calls import TeamCalls
from cli.token_calls import TokenCalls
from cli.transport import Transport
from cli.waiting import LONGEST_POLL_SECONDS, LONGEST_WAIT_SECONDS, POLL_SECONDS, SLOWEST_POLL_SECONDS
from cli.webhook_calls import WebhookCalls


class Client(
    JobCalls,
    ExecutionCalls,
    StorageCalls,
    KeepingCalls,
    FleetCalls,
    TeamCalls,
    TokenCalls,
    AuditCalls,
    WebhookCalls,
):
    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout_seconds: float | None = None
    ) -> None:
        """Neither an address nor a token: those that the command line would take."""
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
        """A file becomes a job; `inputs` are files, by the path at which the program finds each.

        All else is sent as it is: `schedules`, `args`, `env`, `retry` and the others are as the API has them.
        """
        path = Path(program)
        given = [f"{where}={file}" for where, file in (inputs or {}).items()]
        chosen = None if runtime is None else parse_runtime(runtime)
        return self.submit_job(
            {
                "name": name or path.stem,
                **prepare_program(self, path, chosen),
                **prepare_given(self, None if stdin is None else Path(stdin), given),
                **fields,
            }
        )

    def wait(self, of: Job | Execution | str, *, timeout_seconds: float = LONGEST_WAIT_SECONDS) -> Execution:
        """The execution once it has ended; of a job, its first one.

        The server waits with us; if it has no room for that, we ask again.
        """
        deadline = time.monotonic() + timeout_seconds
        if isinstance(of, Job):
            of = self.first_execution(of.id, deadline=deadline)
        execution_id = of if isinstance(of, str) else of.id
        pause = POLL_SECONDS
        while True:
            asked_at = time.monotonic()
            wait = max(0, min(LONGEST_POLL_SECONDS, int(deadline - asked_at)))
            execution = self.execution(execution_id, wait_seconds=wait)
            if execution.has_ended:
                return execution
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"The execution {execution_id} is still {execution.status} after {timeout_seconds:g} s."
                )
            time.sleep(max(0.0, min(asked_at + pause, deadline) - time.monotonic()))
            pause = min(pause * 1.5, SLOWEST_POLL_SECONDS)

    def first_execution(self, job_id: str, *, deadline: float) -> Execution:
        """The first execution of a job that was just submitted, once there is one."""
        while not (found := self.executions(job_id=job_id, limit=100)):
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"The job {job_id} was not fired within the time given for waiting.")
            time.sleep(POLL_SECONDS)
        # Ids grow with time.
        return min(found, key=lambda execution: execution.id)

    def log(self, execution: Execution | str, *, attempt: int | None = None) -> str:
        """All that it wrote; `logs` is the same in pieces, for logs that are long."""
        with self.logs(execution if isinstance(execution, str) else execution.id, attempt=attempt) as pieces:
            return b"".join(pieces).decode("utf-8", errors="replace")
