"""Our worker as a measured process."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from benchmarks.laboratory import Laboratory
from benchmarks.measured_process import MeasuredProcess


def punctual_worker(room: Laboratory, environment: Mapping[str, str]) -> MeasuredProcess:
    return MeasuredProcess(
        "worker",
        (sys.executable, "-m", "celery", "-A", "scheduler_project", "worker", "-l", "INFO"),
        room.directory,
        {"PUNCTUAL_LOG_LEVEL": "INFO", **environment},
    )
