"""What a sandboxed run costs beside a bare spawn, and beside bubblewrap alone with the same arguments.

`.venv/bin/python -m benchmarks.spawning [--runs 400] [--rounds 3]`

Each contender runs `true` from its own copy of it, in a process of its own, one, four and eight at once, in turns.
Ours has limits, accounting, collection and its worker's checks on top; the others only start and wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

from benchmarks.laboratory import say
from benchmarks.spawners import CONTENDERS, Measurement, cpu_cgroup
from benchmarks.verdict import Target, conclude, machine, percentile

AT_ONCE = (1, 4, 8)
CONTENDER_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="of each contender in each round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    about = machine()
    rounds = [_round(options.runs, number) for number in range(options.rounds)]
    shown = {
        name: {str(at_once): _summary([one[name, at_once] for one in rounds]) for at_once in AT_ONCE}
        for name in CONTENDERS
    }
    shares = {
        at_once: statistics.median(_rate(one["ours", at_once]) / _rate(one["bubblewrap", at_once]) for one in rounds)
        for at_once in AT_ONCE
    }
    targets = {f"share_of_bubblewrap_at_{at_once}": Target(share, at_least=1.0) for at_once, share in shares.items()}
    return conclude({"benchmark": "spawning", **about, "by_how_many_at_once": shown}, targets)


def _round(runs: int, number: int) -> dict[tuple[str, int], Measurement]:
    results = {}
    for at_once in AT_ONCE:
        for name in CONTENDERS:
            results[name, at_once] = _measure(name, runs, at_once)
        rates = ", ".join(f"{name} {_rate(results[name, at_once]):.0f}" for name in CONTENDERS)
        say(f"round {number + 1}, {at_once} at once, runs a second: {rates}")
    return results


def _measure(name: str, runs: int, at_once: int) -> Measurement:
    with cpu_cgroup() as cgroup:
        command = [sys.executable, "-m", "benchmarks.spawners", name, str(runs), str(at_once)]
        command += [str(cgroup)] if cgroup else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONTENDER_SECONDS, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return Measurement(**json.loads(done.stdout))


def _rate(measured: Measurement) -> float:
    return len(measured.seconds) / measured.elapsed


def _summary(rounds: Sequence[Measurement]) -> Mapping[str, object]:
    seconds = [one for measured in rounds for one in measured.seconds]
    return {
        "p50_ms": round(1000 * percentile(seconds, 0.5), 2),
        "p99_ms": round(1000 * percentile(seconds, 0.99), 2),
        "runs_per_s": round(statistics.median(_rate(measured) for measured in rounds)),
        "cpu_ms": round(1000 * statistics.median(one.cpu_seconds / len(one.seconds) for one in rounds), 2),
        "cpu_counted_by": rounds[0].cpu_counted_by,
    }


if __name__ == "__main__":
    sys.exit(main())
