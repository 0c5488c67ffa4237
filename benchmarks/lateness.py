"""How late the messages of one real beat are among a million schedules, and what it costs in memory.

`.venv/bin/python -m benchmarks.lateness [--schedules 1000000] [--seconds 30] [--busy 1] [--stock 1000,10000,...]`

Lateness is from the instant that was asked for to the message in Redis, first alone, then with busy loops. Stock
django-celery-beat gets the same load, alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.measured_process import MeasuredProcess
from benchmarks.population import SPIKE
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from benchmarks.synthetic_workers import SyntheticWorkers

# Beat has this long to start before the first measured instant, and this long between the loads.
START_SECONDS = 20
REST_SECONDS = 10
GRACE_SECONDS = 15
PER_SECOND = 100
MEGABYTES = 200
# Resident memory moves by a few pages: more than this from the first samples to the last is growth.
FLAT_MEGABYTES = 10


STAGES = ("fired", "placed", "published", "arrived")


@dataclass(frozen=True, slots=True)
class Late:
    """When each stage of an execution came, in seconds after its instant."""

    instant: datetime
    fired: float
    placed: float
    published: float
    arrived: float


@dataclass(frozen=True, slots=True)
class Loads:
    """Many schedules due in one second, then a steady rate; made and announced before."""

    herd_at: datetime
    steady_at: datetime
    seconds: int

    @property
    def count(self) -> int:
        return SPIKE + PER_SECOND * self.seconds

    def spike(self, late: Sequence[Late]) -> list[Late]:
        return [one for one in late if one.instant == self.herd_at]

    def steady(self, late: Sequence[Late]) -> list[Late]:
        return [one for one in late if timedelta() <= one.instant - self.steady_at < timedelta(seconds=self.seconds)]


@dataclass(frozen=True, slots=True)
class Measured:
    first_firing_s: float
    memory_mb: Sequence[float]
    late: Sequence[Late]
    alone: Loads
    beside_busy: Loads | None
    missing: int
    repeated: int
    unannounced: int
    lost: int
    hits: int
    fallbacks: int
    complaints: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=30, help="of the steady load; a multiple of ten")
    parser.add_argument(
        "--busy", type=int, default=1, help="loops during which the loads are repeated; 0 leaves it out"
    )
    parser.add_argument("--stock", default="1000,10000,100000,1000000", help="sizes, or nothing to leave it out")
    options = parser.parse_args()
    about = machine()
    with laboratory() as room:
        ours = _measure(room, options.schedules, options.seconds, options.busy)
        stock = _stock(room, [int(size) for size in options.stock.split(",") if size], options.seconds)
    quarter = max(1, len(ours.memory_mb) // 4)
    first, last = (percentile(part, 0.5) for part in (ours.memory_mb[:quarter], ours.memory_mb[-quarter:]))
    result = {
        "benchmark": "lateness",
        **about,
        "schedules": options.schedules,
        "spike_ms": _milliseconds(ours.alone.spike(ours.late)),
        "steady_ms": _milliseconds(ours.alone.steady(ours.late)),
        "beside_busy": _beside_busy(options.busy, ours.beside_busy, ours.late),
        "memory_mb": {"first": round(first), "last": round(last), "most": round(max(ours.memory_mb))},
        "messages": {"missing": ours.missing, "repeated": ours.repeated},
        "beat_complaints": ours.complaints,
        "window": {"hits": ours.hits, "fallbacks": ours.fallbacks, "lost": ours.lost},
        "stock": stock,
    }
    targets = {
        "first_firing_s": Target(ours.first_firing_s, at_most=5),
        "memory_mb": Target(max(ours.memory_mb), at_most=MEGABYTES),
        "memory_growth_mb": Target(last - first, at_most=FLAT_MEGABYTES),
        "spike_p99_ms": Target(_p99_ms(ours.alone.spike(ours.late)), at_most=250),
        "steady_p99_ms": Target(_p99_ms(ours.alone.steady(ours.late)), at_most=60),
        "missing": Target(ours.missing, at_most=0),
        "unannounced": Target(ours.unannounced, at_most=0),
        # Otherwise nothing was announced because the window had no listener.
        "share_of_sleeps_by_window": Target(ours.hits / max(1, ours.hits + ours.fallbacks), at_least=0.5),
    }
    if ours.beside_busy:
        targets["spike_beside_busy_p99_ms"] = Target(_p99_ms(ours.beside_busy.spike(ours.late)), at_most=500)
        targets["steady_beside_busy_p99_ms"] = Target(_p99_ms(ours.beside_busy.steady(ours.late)), at_most=250)
    return conclude(result, targets)


def _measure(room: Laboratory, schedules: int, seconds: int, busy: int) -> Measured:
    from benchmarks.population import arm_overdue, make_schedules
    from benchmarks.punctual_beat import punctual_beat, window_report
    from benchmarks.synthetic_workers import SyntheticWorkers

    say(f"making {schedules:,} schedules")
    make_schedules(schedules)
    alone, beside_busy = _arm(seconds), None
    arm_overdue(datetime.now(UTC))
    with SyntheticWorkers(room) as workers, punctual_beat(room) as beat:
        if not workers.wait_for(1, seconds=60):
            raise SystemExit(f"Beat sent nothing within 60 seconds:\n{beat.log[-2000:]}")
        first_at = min(workers.arrived.values())
        say(f"first message after {first_at - beat.started_at:.2f} s")
        _wait_for(alone, workers)
        if busy:
            beside_busy = _arm(seconds)
            with ExitStack() as loops:
                for number in range(busy):
                    argv = (sys.executable, "-c", "while True: pass")
                    loops.enter_context(MeasuredProcess(f"busy-{number}", argv, room.directory, {}))
                _wait_for(beside_busy, workers)
        ended_at = time.time()
    window = window_report(beat)
    for line in beat.complaints()[:5]:
        say(f"beat complained: {line}")
    late = _lateness(workers.arrived)
    return Measured(
        first_firing_s=first_at - beat.started_at,
        memory_mb=beat.memory_between(first_at, ended_at),
        late=late,
        alone=alone,
        beside_busy=beside_busy,
        missing=1 + sum(loads.count for loads in (alone, beside_busy) if loads) - len(late),
        repeated=workers.repeated,
        unannounced=window.unannounced,
        lost=window.lost,
        hits=window.hits,
        fallbacks=window.fallbacks,
        complaints=len(beat.complaints()),
    )


def _arm(seconds: int) -> Loads:
    from benchmarks.population import arm_spike, arm_steady, next_minute, settle_tables
    from jobs.tasks import refill_due_window

    # What arming takes at most, and the time to start.
    herd_at = next_minute(datetime.now(UTC) + timedelta(seconds=START_SECONDS + 20))
    loads = Loads(herd_at, herd_at + timedelta(seconds=REST_SECONDS), seconds)
    arm_spike(loads.herd_at)
    arm_steady(loads.steady_at, per_second=PER_SECOND, seconds=seconds)
    settle_tables()
    # As an installation that runs has done.
    refill_due_window()
    return loads


def _wait_for(loads: Loads, workers: SyntheticWorkers) -> None:
    before = len(workers.arrived)
    say(f"{SPIKE:,} are due at {loads.herd_at:%H:%M:%S}")
    _wait_until(loads.herd_at)
    workers.wait_for(before + SPIKE, seconds=REST_SECONDS - 1)
    arrived = len(workers.arrived) - before
    say(f"{arrived:,} of {SPIKE:,} arrived; now {PER_SECOND} a second for {loads.seconds} seconds")
    _wait_until(loads.steady_at + timedelta(seconds=loads.seconds))
    workers.wait_for(before + loads.count, seconds=GRACE_SECONDS)


def _beside_busy(loops: int, loads: Loads | None, late: Sequence[Late]) -> dict[str, object]:
    if loads is None:
        return {}
    spike, steady = _milliseconds(loads.spike(late)), _milliseconds(loads.steady(late))
    return {"loops": loops, "spike_ms": spike, "steady_ms": steady}


def _wait_until(moment: datetime) -> None:
    time.sleep(max(0.0, moment.timestamp() - time.time()))


def _lateness(arrived: Mapping[UUID, float]) -> list[Late]:
    """Of every execution whose message came."""
    from jobs.models import Execution

    columns = ("id", "scheduled_for", "fired_at", "placed_at", "published_at")
    late = []
    for execution_id, instant, *stages in Execution.objects.values_list(*columns):
        if execution_id in arrived:
            fired, placed, published = ((stage - instant).total_seconds() for stage in stages)
            late.append(Late(instant, fired, placed, published, arrived[execution_id] - instant.timestamp()))
    return late


def _p99_ms(late: Sequence[Late]) -> float:
    return 1000 * percentile([one.arrived for one in late], 0.99)


def _milliseconds(late: Sequence[Late]) -> dict[str, object]:
    shares = {"p50": 0.5, "p99": 0.99, "most": 1.0}
    arrived = [one.arrived for one in late]
    stages = {stage: round(1000 * percentile([getattr(one, stage) for one in late], 0.99), 1) for stage in STAGES}
    return {
        **{name: round(1000 * percentile(arrived, share), 1) for name, share in shares.items()},
        "p99_by_stage": stages,
    }


def _stock(room: Laboratory, sizes: list[int], seconds: int) -> dict[str, object]:
    from benchmarks.stock import StockBeat, largest_survived

    if not sizes:
        return {}
    with StockBeat(room) as stock:
        return largest_survived(sizes, lambda size: stock.lateness(size, per_second=PER_SECOND, seconds=seconds))


if __name__ == "__main__":
    sys.exit(main())
