"""Attempts and events of an execution as lines, and warnings about the last attempt.

An attempt can succeed and still lose output files, which no list of the kept ones shows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from punctual_cli.output.terminal import format_time, write_message
from punctual_client.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_client.client import Client
    from punctual_client.resources.executions import Attempt, ExecutionEvent


def warn_about_last_attempt(client: Client, execution_id: str) -> None:
    """Warn after the actual output, which is valid even if this request fails."""
    with suppress(ApiError):
        warn_about_problems(client.attempts(execution_id))


def warn_about_problems(attempts: Sequence[Attempt]) -> None:
    """Warn about the latest attempt only: its outputs are the ones that are kept."""
    for problem in attempts[-1].problems if attempts else ():
        write_message(f"Note: {problem}")


def format_attempt(attempt: Attempt) -> str:
    times = (("started", attempt.started_at or attempt.placed_at), ("ended", attempt.ended_at))
    parts = [f"{word} {format_time(at)}" for word, at in times if at]
    if attempt.reason and attempt.reason != "exit":
        parts.append(attempt.reason.replace("_", " "))
    if attempt.exit_code is not None:
        parts.append(f"exit code {attempt.exit_code}")
    if attempt.signal is not None:
        parts.append(f"signal {attempt.signal}")
    parts.append(f"worker {attempt.worker_id}")
    return " · ".join([", ".join(parts), *attempt.problems])


def format_event(event: ExecutionEvent) -> str:
    name = event.name.removeprefix("execution.").replace("_", " ")
    return ", ".join([f"{format_time(event.at)} {name}", *(f"{key} {value}" for key, value in event.details)])
