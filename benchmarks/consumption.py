"""CPU seconds of the processes of an installation, each by itself; what ended in the meantime is in its parent's."""

from __future__ import annotations

from contextlib import suppress

import psutil

from benchmarks.laboratory import Laboratory
from benchmarks.measured_process import MeasuredProcess

Seconds = dict[str, float]


def consumed(room: Laboratory, beat: MeasuredProcess, worker: MeasuredProcess) -> Seconds:
    """Since each process started. `sandboxes` are the worker's children: its launcher, and all that it has started."""
    return {
        "beat": _own(psutil.Process(beat.pid)),
        "worker": _own(psutil.Process(worker.pid)),
        "sandboxes": sum(_with_children(child) for child in psutil.Process(worker.pid).children()),
        "postgres": _with_children(psutil.Process(room.postgres_pid)),
        "redis": _with_children(psutil.Process(room.redis_pid)),
    }


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _with_children(process: psutil.Process) -> float:
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
