"""Find and stop the processes of this stack by the records that they wrote.

A record holds a pid and its start time, so a later process with the same pid is never mistaken for ours.
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

from scheduler_project.localstack.processes.launch import read_start_time

POLL_SECONDS = 0.05
KILL_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class ProcessRecord:
    pid: int
    started: int

    @classmethod
    def read(cls, path: Path) -> ProcessRecord | None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(int(document["pid"]), int(document["started"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def is_alive(self) -> bool:
        """Return whether the process lives; a zombie does not count."""
        if read_start_time(self.pid) != self.started:
            return False
        try:
            return psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def wait(self, seconds: float) -> bool:
        """Return whether it ended in time."""
        deadline = time.monotonic() + seconds
        while self.is_alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def end(self, number: signal.Signals, seconds: float) -> None:
        """Send the signal, wait, then kill it."""
        if self.is_alive():
            self._send(number)
            if not self.wait(seconds):
                self._send(signal.SIGKILL)
                self.wait(KILL_TIMEOUT_SECONDS)

    def end_group(self) -> None:
        """Kill what it left in its process group."""
        if read_start_time(self.pid) in (None, self.started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def stop_leftover_processes(records: dict[Path, tuple[signal.Signals, float]]) -> list[str]:
    """Stop living processes of an earlier start in the given order; return their names."""
    stopped = []
    for path, (number, seconds) in records.items():
        record = ProcessRecord.read(path)
        if record is None:
            continue
        if record.is_alive():
            stopped.append(path.stem)
            record.end(number, seconds)
        record.end_group()
        path.unlink(missing_ok=True)
    return stopped
