"""What every engine can do, whether the supervisor or a test runs it.

An engine knows how to make its data, which process to start and when it answers; it starts nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.process import ProcessSpec

READY_SECONDS = 30.0
POLL_SECONDS = 0.05

# Raises StackProblem once waiting is in vain, because the process has ended.
Liveness = Callable[[], None]


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def directory(self) -> Path: ...

    def ports(self) -> tuple[int, ...]:
        """Every port that it will listen on."""

    def prepare(self) -> None:
        """Makes its data directory; does nothing to one that is there."""

    def process(self) -> ProcessSpec:
        """The process to start."""

    def answers(self) -> bool:
        """Whether it does its work now."""

    def environment(self) -> Mapping[str, str]:
        """The variables through which Punctual's processes find it."""


def wait_until_ready(engine: Engine, still_alive: Liveness, *, seconds: float = READY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not engine.answers():
        still_alive()
        if time.monotonic() > deadline:
            raise StackProblem(f"{engine.name} did not answer within {seconds:.0f} seconds.")
        time.sleep(POLL_SECONDS)
