"""Interface of the engines, used by the supervisor's configuration and by tests.

An engine prepares its data, describes its process and reports readiness; it starts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.processes.spec import ProcessSpec

READY_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.05

# Raises StackError once the process has ended, so that waiting is pointless.
RequireAlive = Callable[[], None]


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def directory(self) -> Path: ...

    def ports(self) -> tuple[int, ...]:
        """Return every port that it listens on."""

    def prepare(self) -> None:
        """Create its data directory unless it exists."""

    def process(self) -> ProcessSpec:
        """Return the process to start."""

    def answers(self) -> bool:
        """Return whether it serves requests."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables that configure Punctual's processes for it."""


def wait_until_engine_ready(
    engine: Engine, still_alive: RequireAlive, *, seconds: float = READY_TIMEOUT_SECONDS
) -> None:
    deadline = time.monotonic() + seconds
    while not engine.answers():
        still_alive()
        if time.monotonic() > deadline:
            raise StackError(f"{engine.name} did not answer within {seconds:.0f} seconds.")
        time.sleep(POLL_SECONDS)
