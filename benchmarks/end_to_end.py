"""How fast one worker runs `true` from due schedules, beside a loop that only spawns the same sandbox, and how late.

`.venv/bin/python -m benchmarks.end_to_end [--runs 1000] [--rounds 5] [--seconds 30] [--history 1000000]`

One real beat, one real worker, the real sandbox; the bare loop runs in the same rounds. Then the same among many more
ended executions, and what an execution costs: statements, round trips, commits, and CPU in each process.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from benchmarks.bare_sandbox import BareSandbox
    from benchmarks.measured_process import MeasuredProcess

PROGRAM = Path("/usr/bin/true")
SCHEDULES = 5000
PER_SECOND = 20
TIMEOUT_SECONDS = 60.0
ROUND_SECONDS = 300
LOOK_SECONDS = 0.1
# So much before the first measured instant, and so much after the last for what is still under way.
REST_SECONDS = 5
GRACE_SECONDS = 10
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
STAGES = ("fired", "placed", "claimed", "started", "ended")


@dataclass(frozen=True, slots=True)
class Installation:
    room: Laboratory
    beat: MeasuredProcess
    worker: MeasuredProcess


@dataclass(frozen=True, slots=True)
class Rates:
    """Runs a second, in the middle of several rounds; the share is the middle of the rounds' own shares."""

    bare: float
    real: float
    share: float
    shares: Sequence[float]
    cpu_ms: Mapping[str, float]  # an execution's, in the middle of the rounds

    @property
    def control(self) -> float:
        """The CPU of all but the sandboxes, in shares of theirs, which tell how fast the machine was meanwhile."""
        return (sum(self.cpu_ms.values()) - self.cpu_ms["sandboxes"]) / self.cpu_ms["sandboxes"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="executions of one round, at most half the schedules")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=30, help=f"of {PER_SECOND} runs a second; a multiple of ten")
    parser.add_argument("--history", type=int, default=1_000_000, help="ended executions; 0 leaves that part out")
    parser.add_argument("--counted", type=int, default=300, help="executions whose statements are counted")
    parser.add_argument("--slots", type=int, help="of the worker, if not as many as it takes by default")
    options = parser.parse_args()
    about = machine()
    settings = {"PUNCTUAL_WORKER_SLOTS": str(options.slots)} if options.slots else {}
    with laboratory() as room, ExitStack() as held:
        bare = held.enter_context(_prepare())
        with _installation(room, settings) as installed:
            at_best = bare.best_rate(max(100, options.runs // 5))
            few = _compare(installed, bare, options.runs, options.rounds)
            late = _lateness(options.seconds)
            many = _among_many(installed, bare, options) if options.history else None
        counted = _counted(room, settings, options.counted)
    started = [stages["started"] for stages in late]
    result = {
        "benchmark": "end_to_end",
        **about,
        **_format_rates(few),
        "bare_at_best_per_s": round(at_best),
        "due_to_started_ms": {name: _milliseconds(started, share) for name, share in SHARES.items()},
        "p50_by_stage_ms": {stage: _milliseconds([one[stage] for one in late], 0.5) for stage in STAGES},
        "p99_by_stage_ms": {stage: _milliseconds([one[stage] for one in late], 0.99) for stage in STAGES},
        "counted_per_execution": counted,
        "history": {"executions": options.history, **_format_rates(many)} if many else {},
    }
    targets = {
        "share_of_bare_loop": Target(few.share, at_least=0.6),
        "started_p50_ms": Target(_milliseconds(started, 0.5), at_most=30),
        "started_p99_ms": Target(_milliseconds(started, 0.99), at_most=150),
        "missing": Target(PER_SECOND * options.seconds - len(late), at_most=0),
    }
    if many:
        targets["growth"] = Target(many.control / few.control, at_most=1.2)
        targets["growth_of_time"] = Target(few.share / many.share, at_most=1.2)
    return conclude(result, targets)


def _format_rates(rates: Rates) -> dict[str, object]:
    return {
        "bare_per_s": round(rates.bare),
        "runs_per_s": round(rates.real),
        "shares": [round(share, 2) for share in rates.shares],
        "cpu_ms_per_execution": rates.cpu_ms,
    }


def _milliseconds(seconds: Sequence[float], share: float) -> float:
    return round(1000 * percentile(seconds, share), 1)


@contextmanager
def _prepare() -> Iterator[BareSandbox]:
    """Jobs that run `true`, a schedule each, and the same program for the bare loop."""
    from django.contrib.auth.models import User

    from benchmarks.bare_sandbox import BareSandbox
    from benchmarks.population import Needs, make_schedules
    from jobs.models import Artifact
    from jobs.storage import s3

    program = PROGRAM.read_bytes()
    sha256 = hashlib.sha256(program).hexdigest()
    s3.create_bucket()
    s3.put_artifact(sha256, program)
    owner = User.objects.create(username="benchmark")
    # What a job asks for that does not say what it needs.
    needs = Needs(runtime="binary", cpu=0.25, memory_mb=128, disk_mb=64)
    say(f"making {SCHEDULES:,} schedules")
    make_schedules(
        SCHEDULES, artifact=Artifact.objects.create(owner=owner, sha256=sha256, size=len(program)), needs=needs
    )
    with BareSandbox(PROGRAM, needs, TIMEOUT_SECONDS) as bare:
        yield bare


@contextmanager
def _installation(
    room: Laboratory, settings: Mapping[str, str], beat: Mapping[str, str] | None = None
) -> Iterator[Installation]:
    from benchmarks.punctual_beat import punctual_beat
    from benchmarks.punctual_worker import punctual_worker

    with punctual_worker(room, settings) as worker, punctual_beat(room, beat) as started:
        installed = Installation(room, started, worker)
        _run(installed, 20, salt="warm up")
        yield installed
    for process in (worker, started):
        for line in process.complaints()[:5]:
            say(f"complaint: {line}")


def _compare(installed: Installation, bare: BareSandbox, runs: int, rounds: int) -> Rates:
    from benchmarks.population import settle_tables

    bares: list[float] = []
    reals: list[float] = []
    costs: list[Mapping[str, float]] = []
    for number in range(-1, rounds):
        settle_tables()
        before = _cpu(installed)
        real = _run(installed, runs, salt=f"round {number}")
        cost = {name: 1000 * (after - before[name]) / runs for name, after in _cpu(installed).items()}
        alone = bare.rate(runs)
        say(f"{real:.0f} runs a second beside {alone:.0f} bare ones: {real / alone:.2f}")
        if number >= 0:  # The first round warms caches.
            bares.append(alone)
            reals.append(real)
            costs.append(cost)
    shares = [real / alone for real, alone in zip(reals, bares, strict=True)]
    cpu_ms = {name: round(statistics.median(cost[name] for cost in costs), 2) for name in costs[0]}
    return Rates(statistics.median(bares), statistics.median(reals), statistics.median(shares), shares, cpu_ms)


def _cpu(installed: Installation) -> Mapping[str, float]:
    from benchmarks.consumption import consumed

    return consumed(installed.room, installed.beat, installed.worker)


def _run(installed: Installation, runs: int, *, salt: str) -> float:
    """So many schedules are made due in one commit; runs a second from the first firing to the last end."""
    from django.db.models import Max, Min

    from benchmarks.population import make_due
    from jobs.db.wakeups import wake_beat
    from jobs.models import Execution
    from jobs.models.ids import new_id

    first_id = new_id()
    make_due(runs, salt=salt, moment=datetime.now(UTC))
    wake_beat()
    mine = Execution.objects.filter(id__gte=first_id)
    _wait_for(lambda: mine.filter(ended_at__isnull=False).count() >= runs, installed, ROUND_SECONDS)
    states = list(mine.values_list("state", flat=True))
    assert states == ["succeeded"] * runs, f"{len(states)} executions, not all succeeded"
    times = mine.aggregate(first=Min("fired_at"), last=Max("ended_at"))
    return runs / float((times["last"] - times["first"]).total_seconds())


def _wait_for(condition: Callable[[], bool], installed: Installation, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline or not (installed.worker.is_running and installed.beat.is_running):
            logs = f"{installed.beat.log[-2000:]}\n{installed.worker.log[-2000:]}"
            raise SystemExit(f"Not all executions ended within {seconds} seconds:\n{logs}")
        time.sleep(LOOK_SECONDS)


def _lateness(seconds: int) -> list[dict[str, float]]:
    """When each stage of every execution came, in seconds after its instant, at a steady rate."""
    from benchmarks.population import arm_steady, settle_tables
    from jobs.models import Execution
    from jobs.tasks import refill_due_window

    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=REST_SECONDS)
    arm_steady(first, per_second=PER_SECOND, seconds=seconds)
    settle_tables()
    # As an installation that runs has done.
    refill_due_window()
    say(f"{PER_SECOND} runs a second for {seconds} seconds")
    last = first + timedelta(seconds=seconds)
    time.sleep(max(0.0, (last - datetime.now(UTC)).total_seconds()))
    mine = Execution.objects.filter(scheduled_for__gte=first, scheduled_for__lt=last, state="succeeded")
    deadline = time.monotonic() + GRACE_SECONDS
    while mine.count() < PER_SECOND * seconds and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    columns = [f"{stage}_at" for stage in STAGES]
    return [
        {stage: (at - instant).total_seconds() for stage, at in zip(STAGES, stages, strict=True)}
        for instant, *stages in mine.values_list("scheduled_for", *columns)
    ]


def _among_many(installed: Installation, bare: BareSandbox, options: argparse.Namespace) -> Rates:
    from benchmarks.population import make_history

    say(f"making {options.history:,} ended executions")
    make_history(options.history)
    return _compare(installed, bare, options.runs, options.rounds)


def _counted(room: Laboratory, settings: Mapping[str, str], runs: int) -> dict[str, object]:
    """By proxies that count, and so slow down: nothing else is measured meanwhile."""
    from benchmarks.counting_proxy import CountingProxy

    say(f"counting the statements of {runs} executions")
    with CountingProxy(room.database_url) as of_beat, CountingProxy(room.database_url) as of_worker:
        through_worker = {**settings, "DATABASE_URL": of_worker.url}
        with _installation(room, through_worker, {"DATABASE_URL": of_beat.url}) as installed:
            proxies = {"beat": of_beat, "worker": of_worker}
            before, commits = {name: proxy.answered() for name, proxy in proxies.items()}, _commits()
            _run(installed, runs, salt="counted")
            since = {name: proxy.answered() - before[name] for name, proxy in proxies.items()}
            commits = _commits() - commits
    counted = {
        name: {"statements": round(one.statements / runs, 1), "round_trips": round(one.round_trips / runs, 1)}
        for name, one in since.items()
    }
    return {**counted, "commits": round(commits / runs, 1)}


def _commits() -> int:
    """Of writing transactions: each takes a number."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        (number,) = cursor.fetchone()
    return int(number)


if __name__ == "__main__":
    sys.exit(main())
