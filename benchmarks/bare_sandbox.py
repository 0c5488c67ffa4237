"""The floor of a run: the same program in the same sandbox with the same limits, in loops that do nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from benchmarks.laboratory import say
from benchmarks.population import Needs
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, InputFile, Limits, Program

MEGABYTE = 2**20
CONCURRENCIES = (2, 3, 4, 6, 8)
# As many variables as a run gets from its worker.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/work",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
    "LANG": "C.UTF-8",
    **{f"PUNCTUAL_{number}": "0190a0e2-0000-7000-8000-000000000000" for number in range(5)},
}


class BareSandbox:
    """Threads of one process that share a sandbox, as in a worker."""

    def __init__(self, program: Path, needs: Needs, timeout_seconds: float) -> None:
        self._descriptor = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        self._program = Program(
            argv=("/work/program",),
            environment=ENVIRONMENT,
            files=(InputFile("program", self._descriptor, executable=True),),
        )
        self._limits = Limits(
            wall_seconds=timeout_seconds,
            memory_bytes=needs.memory_mb * MEGABYTE,
            disk_bytes=needs.disk_mb * MEGABYTE,
            cpus=needs.cpu,
        )
        self._sandbox = Sandbox(detect_host())

    def __enter__(self) -> BareSandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sandbox.close()
        os.close(self._descriptor)

    def fastest(self, runs: int, among: Sequence[int] = CONCURRENCIES) -> int:
        """How many loops at once start most sandboxes a second here."""
        rates = {at_once: self.rate(runs, at_once) for at_once in among}
        shown = ", ".join(f"{rate:.0f} with {at_once}" for at_once, rate in rates.items())
        say(f"bare sandboxes a second by how many at once: {shown}")
        return max(rates, key=rates.__getitem__)

    def rate(self, runs: int, at_once: int) -> float:
        with ThreadPoolExecutor(at_once) as threads:
            started = time.perf_counter()
            for done in [threads.submit(self._run) for _ in range(runs)]:
                done.result()
            return runs / (time.perf_counter() - started)

    def _run(self) -> None:
        with self._sandbox.start(self._program, self._limits) as run:
            outcome = run.stream(lambda stream, data: None)
        assert (outcome.reason, outcome.exit_code) == (ExitReason.EXIT, 0), outcome
