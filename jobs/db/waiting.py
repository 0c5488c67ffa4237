"""Waiting without holding a thread: a generator yields pauses, and its driver decides how to wait.

Web's event loop runs single steps on a thread and awaits the pauses in between. A caller without an event loop (a test,
Django's development server) blocks its own thread with `run_blocking`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from django.conf import settings

from jobs.db.transactions import release_connection
from jobs.db.wakeups import WakeupListener

Result = TypeVar("Result")


class SharedLook(Protocol):
    """One read of the database for all waiters of a process that share it."""

    @property
    def interval_seconds(self) -> float: ...
    def find_changed(self) -> Collection[str]:
        """Return the channels whose waiters have something to read."""


@dataclass(slots=True)
class Pause:
    """A wait for a wake-up on the channel, at most `seconds`; zero: only subscribe.

    `look`: finds changes whose wake-up got lost; without it the waiter polls. Afterwards `woken` is False if no wake-up
    can have come: the time was up, or the channel stayed subscribed and silent since its last waiter left.
    """

    channel: str
    seconds: float
    look: SharedLook | None = None
    woken: bool = True


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
            listener.wait(step.seconds if step.look is None else min(step.seconds, step.look.interval_seconds))
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
