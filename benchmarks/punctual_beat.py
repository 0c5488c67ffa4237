"""Our beat as a measured process, and what it says about its due window when it ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.laboratory import Laboratory
from benchmarks.measured_process import MeasuredProcess

WINDOW = re.compile(
    r"Due window: (\d+) hits, (\d+) fallbacks to Postgres,"
    r" (\d+) schedules due unannounced, (\d+) announcements lost"
)


@dataclass(frozen=True, slots=True)
class WindowReport:
    hits: int
    fallbacks: int
    unannounced: int
    lost: int


def punctual_beat(room: Laboratory, environment: Mapping[str, str] | None = None) -> MeasuredProcess:
    return MeasuredProcess(
        "beat",
        (sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile=", "-l", "INFO"),
        room.directory,
        {"PUNCTUAL_LOG_LEVEL": "INFO", **(environment or {})},
    )


def window_report(beat: MeasuredProcess) -> WindowReport:
    """Of a beat that has ended."""
    found = WINDOW.search(beat.log)
    if found is None:
        raise SystemExit(f"Beat did not log a report of its due window:\n{beat.log[-2000:]}")
    return WindowReport(*map(int, found.groups()))
