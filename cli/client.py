"""A typed client of the REST API, for the commands and for any Python program.

One method a verb of the API, in the `*_calls` modules; every call is bounded in time, and waiting is polling
with a deadline.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from cli.errors import WaitTimeoutError
from cli.execution_calls import ExecutionCalls
from cli.fleet_calls import FleetCalls
from cli.job_calls import JobCalls
from cli.keeping_calls import KeepingCalls
from cli.records import Execution
from cli.storage_calls import StorageCalls
from cli.token_calls import TokenCalls
from cli.transport import Transport

POLL_SECONDS = 0.25
SLOWEST_POLL_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 20


class Client(
    JobCalls,
    ExecutionCalls,
    StorageCalls,
    KeepingCalls,
    FleetCalls,
    TokenCalls,
):
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self._transport = Transport(url, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    def wait(self, execution_id: str, *, timeout_seconds: float) -> Execution:
        """The execution once it has ended. The server waits with us; if it has no room for that, we ask again."""
        deadline, pause = time.monotonic() + timeout_seconds, POLL_SECONDS
        while True:
            asked_at = time.monotonic()
            wait = max(0, min(LONGEST_WAIT_SECONDS, int(deadline - asked_at)))
            execution = self.execution(execution_id, wait_seconds=wait)
            if execution.has_ended:
                return execution
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(
                    f"The execution {execution_id} is still {execution.status} after {timeout_seconds:g} s."
                )
            time.sleep(max(0.0, min(asked_at + pause, deadline) - time.monotonic()))
            pause = min(pause * 1.5, SLOWEST_POLL_SECONDS)
