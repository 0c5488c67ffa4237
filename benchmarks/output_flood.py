"""What a run that floods its output does to the worker and to other runs beside it; no engines.

`.venv/bin/python -m benchmarks.output_flood [--seconds 10] [--rounds 2] [--megabytes-per-s 50]`

In turns without and with the flood, in the real sandbox and through the worker's own log streams: short runs, one after
the other, and a run that says what time it is twenty times a second. The control plane takes everything and stores
nothing: this measures the worker.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.laboratory import say
from benchmarks.verdict import Target, conclude, machine, percentile
from jobs.domain.worker_protocol import Chunk, Progress
from workers.run.log_stream import LogFlusher, LogStream
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import Limits, Program

MEGABYTE = 2**20
PYTHON = next(path for path in ("/usr/local/bin/python3", "/usr/bin/python3") if Path(path).exists())
PATH = {"PATH": "/usr/bin:/bin"}
FLOOD = """
import os, sys, time
rate, seconds = float(sys.argv[1]) * 2**20, float(sys.argv[2])
block, written, began = b"x" * 65535 + b"\\n", 0, time.monotonic()
while (passed := time.monotonic() - began) < seconds:
    if written <= passed * rate:
        written += os.write(1, block)
    else:
        time.sleep((written - passed * rate) / rate)
with open("out/written", "w") as file:
    file.write(f"{written} {time.monotonic() - began}")
"""
TICKER = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    print(repr(time.time()), flush=True)
    time.sleep(0.05)
"""


@dataclass
class Phase:
    seconds_each: list[float] = field(default_factory=list)  # of the short runs
    late: list[float] = field(default_factory=list)  # seconds from a line to the control plane
    flood_rate: float = 0.0
    kept: int = 0
    grown_mb: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--megabytes-per-s", type=float, default=50)
    options = parser.parse_args()
    about = machine()
    phases: dict[bool, list[Phase]] = {False: [], True: []}
    with _bench() as bench:
        for number in range(options.rounds):
            for flooded in (False, True):
                phase = bench.measure(options.seconds, options.megabytes_per_s if flooded else 0)
                phases[flooded].append(phase)
                say(f"round {number + 1}, {'flood' if flooded else 'quiet'}: {_summarize([phase])}")
    quiet, flood = _summarize(phases[False]), _summarize(phases[True])
    cap = _limits(1).output_bytes
    targets = {
        "flood_mb_per_s": Target(min(one.flood_rate for one in phases[True]), at_least=0.9 * options.megabytes_per_s),
        "kept_share_of_cap": Target(min(one.kept for one in phases[True]) / cap, at_least=1.0, at_most=1.0),
        "slowdown_of_other_runs": Target(flood["run_p50_ms"] / quiet["run_p50_ms"], at_most=2.0),
        "log_late_p99_ms": Target(flood["log_late_p99_ms"], at_most=1000),
        "memory_growth_mb": Target(max(one.grown_mb for one in phases[True]), at_most=32),
    }
    return conclude({"benchmark": "output_flood", **about, "quiet": quiet, "flood": flood}, targets)


class Bench:
    def __init__(self, sandbox: Sandbox, flusher: LogFlusher) -> None:
        self._sandbox = sandbox
        self._flusher = flusher

    def measure(self, seconds: float, flood_megabytes: float) -> Phase:
        phase, over = Phase(), threading.Event()
        before = _resident_mb()
        with ThreadPoolExecutor(3) as threads:
            ticking = threads.submit(self._tick, phase, seconds)
            short = threads.submit(self._short_runs, phase, over)
            if flood_megabytes:
                threads.submit(self._flood, phase, seconds, flood_megabytes).result()
            ticking.result()
            over.set()
            short.result()
        phase.grown_mb = _resident_mb() - before
        return phase

    def _flood(self, phase: Phase, seconds: float, megabytes: float) -> None:
        def take(chunks: Sequence[Chunk], progress: Progress | None) -> None:
            phase.kept += sum(len(chunk.data) for chunk in chunks)

        program = Program((PYTHON, "-c", FLOOD, str(megabytes), str(seconds)), PATH)
        said = self._run(program, _limits(3 * seconds + 30), LogStream(take))
        written, elapsed = map(float, said["written"].split())
        phase.flood_rate = written / MEGABYTE / elapsed

    def _tick(self, phase: Phase, seconds: float) -> None:
        def take(chunks: Sequence[Chunk], progress: Progress | None) -> None:
            now = time.time()
            phase.late.extend(now - float(line) for chunk in chunks for line in chunk.data.split())

        self._run(Program((PYTHON, "-c", TICKER, str(seconds)), PATH), _limits(3 * seconds + 30), LogStream(take))

    def _short_runs(self, phase: Phase, over: threading.Event) -> None:
        while not over.is_set():
            began = time.perf_counter()
            self._run(Program(("/bin/echo", "done"), PATH), _limits(30), LogStream(lambda chunks, progress: None))
            phase.seconds_each.append(time.perf_counter() - began)

    def _run(self, program: Program, limits: Limits, log: LogStream) -> Mapping[str, str]:
        """As a worker does; returns what the program left in `out`."""
        self._flusher.add(log)
        try:
            with self._sandbox.start(program, limits) as run:
                outcome = run.stream(lambda stream, data: log.write(stream.value, data))
                log.close()
                if outcome.exit_code != 0:
                    raise SystemExit(f"a run ended with {outcome}")
                opened = {
                    name: os.open(name, os.O_RDONLY, dir_fd=run.output_directory)
                    for name in os.listdir(run.output_directory)
                }
                return {name: _text(descriptor) for name, descriptor in opened.items()}
        finally:
            self._flusher.remove(log)


@contextmanager
def _bench() -> Iterator[Bench]:
    sandbox, flusher = Sandbox(detect_host()), LogFlusher()
    flusher.start()
    try:
        sandbox.prepare(3)
        yield Bench(sandbox, flusher)
    finally:
        flusher.stop()
        sandbox.close()


def _limits(wall_seconds: float) -> Limits:
    return Limits(wall_seconds=wall_seconds, memory_bytes=2**27, disk_bytes=2**22, cpus=1)


def _text(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        return file.read()


def _summarize(phases: Sequence[Phase]) -> dict[str, float]:
    runs = [one for phase in phases for one in phase.seconds_each]
    late = [one for phase in phases for one in phase.late]
    return {
        "runs": len(runs),
        "run_p50_ms": round(1000 * percentile(runs, 0.5), 2),
        "run_p99_ms": round(1000 * percentile(runs, 0.99), 2),
        "log_late_p50_ms": round(1000 * percentile(late, 0.5), 1),
        "log_late_p99_ms": round(1000 * percentile(late, 0.99), 1),
        "flood_mb_per_s": round(min(phase.flood_rate for phase in phases), 1),
    }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


if __name__ == "__main__":
    sys.exit(main())
