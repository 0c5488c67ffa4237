"""What is said of the attempts at an execution: each in a line, and on stderr what nobody would look for.

A run that succeeded may still have lost files of its own: no list of those that it left shows that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cli.errors import ClientError
from cli.terminal import say, shown_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.attempt_records import Attempt, Event
    from cli.client import Client


def warn_of_last(client: Client, execution_id: str) -> None:
    """Beside what was asked for, which stays as good as it is if this cannot be known."""
    with suppress(ClientError):
        warn(client.attempts(execution_id))


def warn(attempts: Sequence[Attempt]) -> None:
    """Of the latest only: its outputs are those that are kept."""
    for problem in attempts[-1].problems if attempts else ():
        say(f"Note: {problem}")


def attempt_in_words(attempt: Attempt) -> str:
    times = (("started", attempt.started_at or attempt.placed_at), ("ended", attempt.ended_at))
    parts = [f"{word} {shown_time(at)}" for word, at in times if at]
    if attempt.reason and attempt.reason != "exit":
        parts.append(attempt.reason.replace("_", " "))
    if attempt.exit_code is not None:
        parts.append(f"exit code {attempt.exit_code}")
    if attempt.signal is not None:
        parts.append(f"signal {attempt.signal}")
    parts.append(f"worker {attempt.worker_id}")
    return " · ".join([", ".join(parts), *attempt.problems])


def event_in_words(event: Event) -> str:
    name = event.name.removeprefix("execution.").replace("_", " ")
    return ", ".join([f"{shown_time(event.at)} {name}", *(f"{key} {value}" for key, value in event.about)])
