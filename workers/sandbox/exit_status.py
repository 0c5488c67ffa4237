"""Classification of a run's exit from the reports of bubblewrap, the kernel and the watcher; a pure function."""

import json
import signal
from dataclasses import dataclass

from workers.sandbox.values import ExitReason

SIGNAL_EXIT_BASE = 128
KILLED_EXIT_CODE = SIGNAL_EXIT_BASE + signal.SIGKILL
NOT_EXECUTED_EXIT_CODE = 127
LAST_SIGNAL = 64


@dataclass(frozen=True)
class ExitStatus:
    reason: ExitReason
    exit_code: int | None = None
    signal: int | None = None


def parse_exit_code(status: bytes) -> int | None:
    """Return the exit code in bubblewrap's status lines; None if the program was never executed."""
    for line in status.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and isinstance(document.get("exit-code"), int):
            return int(document["exit-code"])
    return None


def classify_exit(
    *, kill_reason: ExitReason | None, exit_code: int | None, out_of_memory: bool, not_executed: bool
) -> ExitStatus:
    """Combine the evidence into one exit status.

    The watcher's `kill_reason` counts only if its SIGKILL ended the run: the program may have exited just before. An
    out-of-memory kill reported by the kernel always counts.
    """
    killed = exit_code in (None, KILLED_EXIT_CODE)
    if out_of_memory and kill_reason in (None, ExitReason.OUT_OF_MEMORY):
        return ExitStatus(ExitReason.OUT_OF_MEMORY, signal=signal.SIGKILL)
    if kill_reason is not None and killed:
        return ExitStatus(kill_reason, signal=signal.SIGKILL)
    if exit_code is None:
        if not_executed:
            return ExitStatus(ExitReason.EXIT, exit_code=NOT_EXECUTED_EXIT_CODE)
        return ExitStatus(ExitReason.SIGNAL, signal=signal.SIGKILL)  # sent from outside to bubblewrap
    if SIGNAL_EXIT_BASE < exit_code <= SIGNAL_EXIT_BASE + LAST_SIGNAL:
        return ExitStatus(ExitReason.SIGNAL, signal=exit_code - SIGNAL_EXIT_BASE)
    return ExitStatus(ExitReason.EXIT, exit_code=exit_code)
