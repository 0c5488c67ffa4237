"""Following an execution: its log as it appears, over all its attempts, until it has ended.

The state is read before the log, so that nothing an ended execution wrote is left out.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from cli.attempt_notes import warn_of_last
from cli.errors import WaitTimeoutError
from cli.results import Format, write_object
from cli.terminal import say, write_log
from cli.waiting import LONGEST_POLL_SECONDS, POLL_SECONDS, SLOWEST_POLL_SECONDS

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Execution, LogChunk

# The server is asked to wait for no longer than this: a person is to see progress, too, which is asked for apart.
PERSON_WAITS_SECONDS = 1
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
BY_SIGNAL = 128


def follow(client: Client, execution_id: str, *, first_attempt: int, deadline: float) -> Iterator[LogChunk]:
    """The chunks of an execution's log from an attempt on, until the execution has ended.

    How far it says it is, is said to the person meanwhile, if there is one.
    """
    attempt, after, pause, told = max(first_attempt, 1), None, POLL_SECONDS, ""
    person = sys.stderr.isatty()
    while True:
        execution = client.execution(execution_id)
        if execution.progress not in ("", told) and person:
            told = execution.progress
            say(f"Progress: {told}")
        looked_at = asked_at = time.monotonic()
        while attempt <= execution.attempt:
            live = attempt == execution.attempt and not execution.has_ended
            asked_at = time.monotonic()
            patience = PERSON_WAITS_SECONDS if person else LONGEST_POLL_SECONDS
            wait = min(patience, int(deadline - asked_at)) if live else 0
            page = client.log_page(execution_id, attempt=attempt, after=after, wait_seconds=max(wait, 0))
            yield from page.chunks
            if page.chunks:
                after, pause = page.chunks[-1].sequence, POLL_SECONDS
                if not page.ended:
                    _rest_since(asked_at, POLL_SECONDS)
            elif attempt < execution.attempt:
                attempt, after = attempt + 1, None
            else:
                break
            if live and time.monotonic() - looked_at >= PERSON_WAITS_SECONDS:
                break
        if execution.has_ended:
            return
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(
                f"The execution {execution_id} is still {execution.status}, and the time to wait is over."
            )
        # The server has no room for all who would wait, and answers some at once.
        _rest_since(asked_at, pause)
        pause = min(pause * 1.5, SLOWEST_POLL_SECONDS)


def _rest_since(moment: float, seconds: float) -> None:
    time.sleep(max(0.0, moment + seconds - time.monotonic()))


def exit_code_of(execution: Execution) -> int:
    """What `--wait` ends with: the program's own code where it has one that says failure, a signal's as in shells."""
    if execution.status == "succeeded":
        return 0
    code = execution.exit_code if execution.signal is None else BY_SIGNAL + execution.signal
    if execution.status == "failed" and code is not None and 0 < code < 256:
        return code
    return EXIT_FAILED


def wait_and_exit(client: Client, execution_id: str, *, deadline: float, output: Format | None) -> NoReturn:
    """Stream the log, or in the end print the execution, and end this command the way the execution ended."""
    with leaving_it_running(execution_id, "waiting"):
        if output is None:
            for chunk in follow(client, execution_id, first_attempt=1, deadline=deadline):
                write_log(chunk.text)
            execution = client.execution(execution_id)
        else:
            execution = client.wait(execution_id, timeout_seconds=deadline - time.monotonic())
            write_object(execution.raw, output)
    say(describe_end(execution))
    warn_of_last(client, execution_id)
    raise typer.Exit(exit_code_of(execution))


@contextmanager
def leaving_it_running(execution_id: str, what: str) -> Iterator[None]:
    """Ctrl-C ends the command and not the execution, and says what can be done about that."""
    try:
        yield
    except KeyboardInterrupt:
        say(
            f"Stopped {what}; the execution goes on. Follow it: ./punctual logs -f {execution_id} · "
            f"Cancel it: ./punctual cancel --execution {execution_id}"
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None


def describe_end(execution: Execution) -> str:
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
