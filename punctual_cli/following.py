"""Following an execution: its log as it is written, over all attempts, until it has ended.

The state is read before the log, so that the log of an ended execution is complete.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from punctual_cli.output.attempt_lines import warn_about_last_attempt
from punctual_cli.output.results import Format, write_object
from punctual_cli.output.terminal import write_log, write_message
from punctual_client.errors import PROGRAM, WaitTimeoutError
from punctual_client.resources.executions import (
    LONG_POLL_SECONDS,
    MAX_POLL_INTERVAL_SECONDS,
    POLL_INTERVAL_SECONDS,
)

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.executions import Execution
    from punctual_client.resources.logs import LogChunk

# On a terminal the long poll for log chunks is short, since progress is polled between them.
PROGRESS_POLL_SECONDS = 1
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
SIGNAL_EXIT_CODE_OFFSET = 128


def follow_log(client: Client, execution_id: str, *, first_attempt: int, deadline: float) -> Iterator[LogChunk]:
    """Yield the log chunks of an execution, starting with an attempt, until the execution has ended.

    On a terminal also print the progress that the program reports.
    """
    attempt, after, interval, last_progress = max(first_attempt, 1), None, POLL_INTERVAL_SECONDS, ""
    interactive = sys.stderr.isatty()
    while True:
        execution = client.execution(execution_id)
        if execution.progress not in ("", last_progress) and interactive:
            last_progress = execution.progress
            write_message(f"Progress: {last_progress}")
        state_read_at = polled_at = time.monotonic()
        while attempt <= execution.attempt:
            live = attempt == execution.attempt and not execution.has_ended
            polled_at = time.monotonic()
            long_poll = PROGRESS_POLL_SECONDS if interactive else LONG_POLL_SECONDS
            wait = min(long_poll, int(deadline - polled_at)) if live else 0
            page = client.log_page(execution_id, attempt=attempt, after=after, wait_seconds=max(wait, 0))
            yield from page.chunks
            if page.chunks:
                after, interval = page.chunks[-1].sequence, POLL_INTERVAL_SECONDS
                if not page.ended:
                    _sleep_since(polled_at, POLL_INTERVAL_SECONDS)
            elif attempt < execution.attempt:
                attempt, after = attempt + 1, None
            else:
                break
            if live and time.monotonic() - state_read_at >= PROGRESS_POLL_SECONDS:
                break
        if execution.has_ended:
            return
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(
                f"The execution {execution_id} is still {execution.status} at the end of the time limit for waiting."
            )
        # The server answers at once when all its waiting slots are taken.
        _sleep_since(polled_at, interval)
        interval = min(interval * 1.5, MAX_POLL_INTERVAL_SECONDS)


def _sleep_since(start: float, seconds: float) -> None:
    time.sleep(max(0.0, start + seconds - time.monotonic()))


def exit_code_of(execution: Execution) -> int:
    """Return the exit code for `--wait`: the program's own, or 128 plus the signal as in shells."""
    if execution.status == "succeeded":
        return 0
    code = execution.exit_code if execution.signal is None else SIGNAL_EXIT_CODE_OFFSET + execution.signal
    if execution.status == "failed" and code is not None and 0 < code < 256:
        return code
    return EXIT_FAILED


def wait_and_exit(client: Client, execution_id: str, *, deadline: float, output: Format | None) -> NoReturn:
    """Stream the log, or print the execution once it has ended, and exit with its exit code."""
    with detach_on_interrupt(execution_id, "waiting"):
        if output is None:
            for chunk in follow_log(client, execution_id, first_attempt=1, deadline=deadline):
                write_log(chunk.text)
            execution = client.execution(execution_id)
        else:
            execution = client.wait(execution_id, timeout_seconds=deadline - time.monotonic())
            write_object(execution.raw, output)
    write_message(describe_outcome(execution))
    warn_about_last_attempt(client, execution_id)
    raise typer.Exit(exit_code_of(execution))


@contextmanager
def detach_on_interrupt(execution_id: str, activity: str) -> Iterator[None]:
    """On Ctrl-C end the command but not the execution, and show how to follow or cancel it."""
    try:
        yield
    except KeyboardInterrupt:
        write_message(
            f"Stopped {activity}; the execution continues. Follow it: {PROGRAM} logs -f {execution_id} · "
            f"Cancel it: {PROGRAM} cancel --execution {execution_id}"
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None


def describe_outcome(execution: Execution) -> str:
    details = [f"attempt {execution.attempt}"]
    if execution.exit_code is not None:
        details.append(f"exit code {execution.exit_code}")
    if execution.reason in (None, "exit") and execution.signal is not None:
        details.append(name_signal(execution.signal))
    elif execution.reason and execution.reason != "exit":
        details.append(execution.reason.replace("_", " "))
    return f"Execution {execution.id} {execution.status.replace('_', ' ')} ({', '.join(details)})."


def name_signal(number: int) -> str:
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
