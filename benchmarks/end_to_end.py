"""How fast and how late one worker runs `true` from due schedules, and what an execution costs.

`.venv/bin/python -m benchmarks.end_to_end [--runs 1000] [--rounds 5] [--seconds 30] [--history 1000000,10000000]`

One real beat, one real worker, the real sandbox. In the same rounds: threads that only start the same sandbox, and a
plain Celery task that runs bubblewrap. Then the same among ended executions.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from benchmarks.bare_sandbox import BareSandbox
    from benchmarks.counting_proxy import Answered, CountingProxy
    from benchmarks.end_to_end_rounds import Installation, Rates

PROGRAM = Path("/usr/bin/true")
SCHEDULES = 5000
PER_SECOND = 20
TIMEOUT_SECONDS = 60.0
LOOK_SECONDS = 0.1
# So much before the first measured instant, and so much after the last for what is still under way.
REST_SECONDS = 5
GRACE_SECONDS = 10
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}
STAGES = ("fired", "placed", "claimed", "started", "ended")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="executions of one round, at most half the schedules")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=30, help=f"of {PER_SECOND} runs a second; a multiple of ten")
    parser.add_argument("--history", default="1000000", help="numbers of ended executions; 0 leaves that part out")
    parser.add_argument("--counted", type=int, default=300, help="executions whose statements are counted")
    parser.add_argument("--slots", type=int, help="of the worker, if not as many as it takes by default")
    options = parser.parse_args()
    about = machine()
    settings = {"PUNCTUAL_WORKER_SLOTS": str(options.slots)} if options.slots else {}
    sizes = sorted(filter(None, map(int, options.history.split(","))))
    with laboratory() as room:
        from benchmarks.end_to_end_rounds import Peers, compare
        from benchmarks.plain_celery import PlainCelery

        with ExitStack() as held:
            bare = held.enter_context(_prepare())
            peers = Peers(bare, bare.fastest(max(100, options.runs // 5)), held.enter_context(PlainCelery(room)))
            installed = held.enter_context(_installation(room, settings))
            few = compare(installed, peers, options.runs, options.rounds)
            late = _lateness(options.seconds)
            grown = {}
            for before, size in pairwise([0, *sizes]):
                _make_history(room, size, after=before)
                grown[size] = compare(installed, peers, options.runs, options.rounds)
        counted = _counted(room, settings, options.counted)
    started = [stages["started"] for stages in late]
    result = {
        "benchmark": "end_to_end",
        **about,
        **few.shown(),
        "due_to_started_ms": {name: _milliseconds(started, share) for name, share in SHARES.items()},
        "p50_by_stage_ms": {stage: _milliseconds([one[stage] for one in late], 0.5) for stage in STAGES},
        "p99_by_stage_ms": {stage: _milliseconds([one[stage] for one in late], 0.99) for stage in STAGES},
        "counted_per_execution": counted,
        "history": {str(size): rates.shown() for size, rates in grown.items()},
    }
    targets = {
        "share_of_bare_at_best": Target(few.share_of_bare, at_least=0.7),
        "share_of_plain_celery": Target(few.share_of_plain, at_least=0.75),
        "cpu_ms_without_sandboxes": Target(few.control_ms, at_most=4.5),
        "commits": Target(few.written["commits"], at_most=1),
        "wal_bytes": Target(few.written["wal_bytes"], at_most=2000),
        "index_tuples": Target(few.written["index_tuples"], at_most=12),
        "started_p50_ms": Target(_milliseconds(started, 0.5), at_most=20),
        "started_p99_ms": Target(_milliseconds(started, 0.99), at_most=60),
        "missing": Target(PER_SECOND * options.seconds - len(late), at_most=0),
        **_growth(few, grown),
    }
    return conclude(result, targets)


def _growth(few: Rates, grown: Mapping[int, Rates]) -> dict[str, Target]:
    targets = {}
    for size, many in grown.items():
        targets[f"growth_at_{size}"] = Target(many.control / few.control, at_most=1.1)
        targets[f"growth_of_time_at_{size}"] = Target(few.share_of_bare / many.share_of_bare, at_most=1.2)
    return targets


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
    from benchmarks.end_to_end_rounds import Installation, run_all
    from benchmarks.punctual_beat import punctual_beat
    from benchmarks.punctual_worker import punctual_worker

    with punctual_worker(room, settings) as worker, punctual_beat(room, beat) as started:
        installed = Installation(room, started, worker)
        run_all(installed, 20, salt="warm up", read=lambda: None)
        yield installed
    for process in (worker, started):
        for line in process.complaints()[:5]:
            say(f"complaint: {line}")


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


def _make_history(room: Laboratory, size: int, *, after: int) -> None:
    from benchmarks.population import make_history

    say(f"making {size - after:,} ended executions")
    make_history(room.superuser_url, size - after, after=after)


def _counted(room: Laboratory, settings: Mapping[str, str], runs: int) -> dict[str, object]:
    """By proxies that count, and so slow down: nothing else is measured meanwhile."""
    from benchmarks.counting_proxy import CountingProxy
    from benchmarks.end_to_end_rounds import run_all

    say(f"counting the statements of {runs} executions")
    with CountingProxy(room.database_url) as of_beat, CountingProxy(room.database_url) as of_worker:
        through_worker = {**settings, "DATABASE_URL": of_worker.url}
        with _installation(room, through_worker, {"DATABASE_URL": of_beat.url}) as installed:
            proxies = {"beat": of_beat, "worker": of_worker}
            _, before = run_all(installed, runs, salt="counted", read=lambda: _answered(proxies))
            since = {name: after - before[name] for name, after in _answered(proxies).items()}
    return {
        name: {"statements": round(one.statements / runs, 1), "round_trips": round(one.round_trips / runs, 1)}
        for name, one in since.items()
    }


def _answered(proxies: Mapping[str, CountingProxy]) -> dict[str, Answered]:
    return {name: proxy.answered() for name, proxy in proxies.items()}


if __name__ == "__main__":
    sys.exit(main())
