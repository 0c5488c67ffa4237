"""A program that writes down when it lives, and the proof from many such journals that no two attempts overlapped.

What a killed run wrote last may never have reached the control plane; so a witness outside looks at the processes, too.
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

from tests.acceptance.stack import Stack

# Every sandbox of a host has the host's monotonic clock. Arguments: seconds to live, and a name that makes it unique.
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
    """What to submit for a job that keeps a journal."""
    return {
        "name": name,
        "runtime": "python",
        "script": f"# {name}\n{PROGRAM}",  # nobody has its artifact cached
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
    """Each attempt is over, by its own word and by the control plane's, before the next one begins."""
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
    """Looks again and again which attempts have a living process."""

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
    """The attempts of every execution that has a process on this host, by what each process was told about itself."""
    found: dict[str, set[str]] = defaultdict(set)
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = environ.read_bytes()
        except OSError:
            continue
        if b"PUNCTUAL_EXECUTION_ID=" not in content:
            continue
        told = dict(part.split("=", 1) for part in content.decode(errors="replace").split("\0") if "=" in part)
        found[told["PUNCTUAL_EXECUTION_ID"]].add(told.get("PUNCTUAL_ATTEMPT", "?"))
    return found
