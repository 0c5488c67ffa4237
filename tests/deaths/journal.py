"""A program that logs when it is alive, and the proof from these journals that no two attempts overlapped.

The last lines of a killed run may never have reached the control plane, so a witness observes the processes as well.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.stack import Stack

# All sandboxes of a host share its monotonic clock. Arguments: seconds to run, and a name that makes it unique.
PROGRAM = """\
import os, sys, time

def note(word):
    print(word, time.monotonic(), flush=True)

note("start")
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    time.sleep(0.1)
    note("tick")
with open("out/attempt", "w") as file:
    file.write(os.environ["PUNCTUAL_ATTEMPT"])
note("end")
"""
SAMPLE_SECONDS = 0.05


def journaled(name: str, seconds: float, **body: Any) -> dict[str, Any]:
    """Return the body of a job that logs a journal."""
    return {
        "name": name,
        "runtime": "python",
        "script": f"# {name}\n{PROGRAM}",  # no worker has cached its artifact
        "args": [str(seconds)],
        "requirements": {"cpu": 0.1, "memory_mb": 64, "disk_mb": 1},
        "max_concurrency": None,
        **body,
    }


def attempts_of(stack: Stack, execution: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        stack.api.get(f"/executions/{execution['id']}/attempts").raise_for_status().json()["results"]
    )
    return sorted(found, key=lambda attempt: int(attempt["number"]))


def check_journals(stack: Stack, execution: dict[str, Any]) -> None:
    """Assert that each attempt ended, by its journal and by the control plane, before the next one began."""
    attempts = attempts_of(stack, execution)
    journals = [_moments(stack.log(execution, attempt=attempt["number"])) for attempt in attempts]
    lives = [journal for journal in journals if journal]
    for former, latter in pairwise(lives):
        assert former[-1] < latter[0], f"two attempts of {execution['id']} wrote at the same time"
    for former_row, latter_row in pairwise(attempts):
        assert moment(former_row["ended_at"]) <= moment(latter_row["claimed_at"]), "two attempts were held"
    assert all(journal == sorted(journal) for journal in lives)


def moment(stage: str) -> datetime:
    return datetime.fromisoformat(stage)


def _moments(log: str) -> list[float]:
    return [float(line.split()[1]) for line in log.splitlines()]


class Witness:
    """Observes repeatedly which attempts have a live process."""

    def __init__(self) -> None:
        self.overlaps: list[tuple[str, list[str]]] = []
        self.samples = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    @contextmanager
    def watching(self) -> Iterator[Witness]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            self.samples += 1
            living = living_attempts()
            self.overlaps += [(execution, sorted(found)) for execution, found in living.items() if len(found) > 1]


def living_attempts() -> dict[str, set[str]]:
    """Return the attempts with a process on this host, by the environment of each process."""
    found: dict[str, set[str]] = defaultdict(set)
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = environ.read_bytes()
        except OSError:
            continue
        if b"PUNCTUAL_EXECUTION_ID=" not in content:
            continue
        environment = dict(part.split("=", 1) for part in content.decode(errors="replace").split("\0") if "=" in part)
        found[environment["PUNCTUAL_EXECUTION_ID"]].add(environment.get("PUNCTUAL_ATTEMPT", "?"))
    return found
