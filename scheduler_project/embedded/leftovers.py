"""Finds and ends the processes of this stack by the records they wrote themselves.

A record names a pid and its start time: a process that got the same pid later is never taken for ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from scheduler_project.embedded.launch import start_time

POLL_SECONDS = 0.05
KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Identity:
    pid: int
    started: int

    @classmethod
    def read(cls, record: Path) -> Identity | None:
        try:
            document = json.loads(record.read_text(encoding="utf-8"))
            return cls(int(document["pid"]), int(document["started"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def is_alive(self) -> bool:
        """A zombie does not count: it holds nothing and waits only for its parent to notice."""
        if start_time(self.pid) != self.started:
            return False
        try:
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def wait(self, seconds: float) -> bool:
        """Returns whether it ended in time."""
        deadline = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def end(self, number: signal.Signals, seconds: float) -> None:
        """Asks it to end, waits, and then kills it."""
        if self.is_alive():
            self._send(number)
            if not self.wait(seconds):
                self._send(signal.SIGKILL)
                self.wait(KILL_SECONDS)

    def end_group(self) -> None:
        """Kills what it left in its process group after it ended itself."""
        if start_time(self.pid) in (None, self.started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def end_leftovers(records: dict[Path, tuple[signal.Signals, float]]) -> list[str]:
    """Ends what is alive of a former life, in the given order, and returns the names of what was."""
    ended = []
    for record, (number, seconds) in records.items():
        identity = Identity.read(record)
        if identity is None:
            continue
        if identity.is_alive():
            ended.append(record.stem)
            identity.end(number, seconds)
        identity.end_group()
        record.unlink(missing_ok=True)
    return ended
