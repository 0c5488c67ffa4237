"""Decides how a run ended from what bubblewrap, the kernel and the watcher say; values in, values out."""

import json
import signal
from dataclasses import dataclass

from workers.sandbox.values import EndReason

BY_SIGNAL = 128
KILLED_CODE = BY_SIGNAL + signal.SIGKILL
NOT_EXECUTED = 127
LAST_SIGNAL = 64


@dataclass(frozen=True)
class End:
    reason: EndReason
    exit_code: int | None = None
    signal: int | None = None


def exit_code_in(status: bytes) -> int | None:
    """Return the code in bubblewrap's status lines; there is none if the program was never executed."""
    for line in status.splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict) and isinstance(document.get("exit-code"), int):
            return int(document["exit-code"])
    return None


def classify_end(*, verdict: EndReason | None, exit_code: int | None, out_of_memory: bool, not_executed: bool) -> End:
    """Combine the evidence.

    A verdict of the watcher counts only if its SIGKILL is what ended the run: a program that returned by
    itself a moment earlier did return. The kernel's word that it killed for memory counts always.
    """
    killed = exit_code in (None, KILLED_CODE)
    if out_of_memory and verdict in (None, EndReason.OUT_OF_MEMORY):
        return End(EndReason.OUT_OF_MEMORY, signal=signal.SIGKILL)
    if verdict is not None and killed:
        return End(verdict, signal=signal.SIGKILL)
    if exit_code is None:
        if not_executed:
            return End(EndReason.EXIT, exit_code=NOT_EXECUTED)
        return End(EndReason.SIGNAL, signal=signal.SIGKILL)  # from outside, with bubblewrap itself
    if BY_SIGNAL < exit_code <= BY_SIGNAL + LAST_SIGNAL:
        return End(EndReason.SIGNAL, signal=exit_code - BY_SIGNAL)
    return End(EndReason.EXIT, exit_code=exit_code)
