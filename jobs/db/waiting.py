"""Waiting without holding a thread: a generator yields pauses, and its driver decides how to wait.

Web's event loop runs single steps on a thread and awaits the pauses in between. A caller without an event loop (a test,
Django's development server) blocks its own thread with `run_blocking`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from django.conf import settings

from jobs.db.transactions import release_connection
from jobs.db.wakeups import WakeupListener

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait for a wake-up on the channel, at most `seconds`; zero: only subscribe."""

    channel: str
    seconds: float


Steps = Generator[Pause, None, Result]
# A stream also yields bytes to send.
StreamedSteps = Generator[Pause | bytes, None, None]


def run_blocking(steps: Generator[Pause | bytes, None, Result]) -> Generator[bytes, None, Result]:
    """Yield the bytes of the steps, and block the calling thread during their pauses."""
    listener: WakeupListener | None = None
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            # Slow readers and waiters must not hold a database connection.
            release_connection()
            if isinstance(step, bytes):
                yield step
                continue
            listener = listener or WakeupListener(settings.PUNCTUAL_REDIS_URL, channel=step.channel)
            listener.wait(step.seconds)
    finally:
        steps.close()
        if listener is not None:
            listener.close()


def wait_blocking(steps: Steps[Result]) -> Result:
    """Run steps that yield only pauses, and return their result."""
    runner = run_blocking(steps)
    try:
        while True:
            next(runner)
    except StopIteration as end:
        result: Result = end.value
        return result
