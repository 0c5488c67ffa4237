"""Logs on their way: from a program's line to a follower, a worker's rate into Postgres, and what they cost.

`.venv/bin/python -m benchmarks.log_flow [--seconds 20] [--floods 4] [--counted 20]`

Real web, beat, worker, sandbox, Postgres, Redis and object store. A run says what time it is twenty times a second, and
a follower waits for its lines through the API, without and with runs beside it that write as fast as they can. Then
runs that only write, up to what is kept of each, beside a bare loop that inserts the same bytes. Last, statements and
calls of the object store for executions of several kinds, through proxies that count.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from punctual_client.client import Client

MEGABYTE = 2**20
WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.1
BATCH_BYTES = MEGABYTE
CHUNK_BYTES = 64 * 1024
TICKER = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    print(repr(time.time()), flush=True)
    time.sleep(0.05)
"""
# Lines as programs write them: alike, and not the same.
LINES = """
import os, random, sys

def make_block():
    chance = random.Random(1)
    line = "2030-01-31 09:00:00,%03d INFO worker.%d handled request %016x in %d ms\\n"
    limits = (1000, 64, 2**64, 900)
    return "".join(line % tuple(map(chance.randrange, limits)) for _ in range(8000)).encode()[:2**19]
"""
WRITER = f"""{LINES}
left, block = int(float(sys.argv[1]) * 2**20), make_block()
while left > 0:
    left -= os.write(1, block[:left])
"""
OUTPUTS = "for number in 1 2 3; do echo $number > out/$number; done"


@dataclass(frozen=True, slots=True)
class Installation:
    room: Laboratory
    client: Client


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of following, without and with a flood")
    parser.add_argument("--floods", type=int, default=4, help="runs that write at once")
    parser.add_argument("--megabytes", type=float, default=64, help="that each of them writes; 64 are kept")
    parser.add_argument("--rounds", type=int, default=3, help="of the rate, each beside the bare loop")
    parser.add_argument("--counted", type=int, default=20, help="executions of each kind; 0 leaves that part out")
    options = parser.parse_args()
    about = machine()
    with laboratory() as room, ExitStack() as held:
        installed = held.enter_context(_installation(room))
        quiet = _lateness(installed, options.seconds, floods=0, megabytes=0)
        beside = _lateness(installed, options.seconds, floods=2, megabytes=options.megabytes)
        rates, floors = [], []
        for number in range(options.rounds):
            rates.append(_rate(installed, options.floods, options.megabytes))
            floors.append(_floor(room, options.floods * options.megabytes))
            say(f"round {number + 1}: {rates[-1]:.1f} MB/s beside {floors[-1]:.1f} MB/s of a bare loop")
        held.close()
        costs = _costs(room, options.counted) if options.counted else {}
    result = {
        "benchmark": "log_flow",
        **about,
        "quiet_ms": _milliseconds(quiet),
        "beside_flood_ms": _milliseconds(beside),
        "mb_per_s": [round(rate, 1) for rate in rates],
        "bare_mb_per_s": [round(rate, 1) for rate in floors],
        "worker_per_execution": costs,
    }
    targets = {
        "quiet_p99_ms": Target(1000 * percentile(quiet, 0.99), at_most=1000),
        "beside_flood_p99_ms": Target(1000 * percentile(beside, 0.99), at_most=1000),
        "mb_per_s": Target(percentile(rates, 0.5), at_least=20),
    }
    return conclude(result, targets)


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p99": 0.99, "most": 1.0}
    return {
        "lines": len(seconds),
        **{name: round(1000 * percentile(seconds, share), 1) for name, share in shares.items()},
    }


@contextmanager
def _installation(room: Laboratory, environment: Mapping[str, str] | None = None) -> Iterator[Installation]:
    from benchmarks.punctual_beat import punctual_beat
    from benchmarks.punctual_web import punctual_web
    from jobs.storage import s3

    s3.create_bucket()
    with punctual_web(room) as client, punctual_beat(room), _worker(room, environment or {}):
        installed = Installation(room, client)
        _wait_for_end(_submit(installed, "warm up", "echo ready"))
        yield installed


@contextmanager
def _worker(room: Laboratory, environment: Mapping[str, str]) -> Iterator[None]:
    from benchmarks.punctual_worker import punctual_worker

    with punctual_worker(room, environment) as worker:
        yield
    for line in worker.complaints()[:5]:
        say(f"complaint: {line}")


def _submit(installed: Installation, name: str, script: str, *args: str, runtime: str = "bash") -> UUID:
    """The execution of a job that runs at once."""
    needs = {"cpu": 0.1, "memory_mb": 64, "disk_mb": 1}
    job = installed.client.submit_job(
        {"name": name, "runtime": runtime, "script": script, "args": list(args), "requirements": needs}
    )
    return _first(job.id)


def _wait_for_end(*executions: UUID) -> None:
    from jobs.models import Execution

    mine = Execution.objects.filter(id__in=executions)
    _wait_for(lambda: not mine.filter(ended_at__isnull=True).exists(), "executions ended")
    states = set(mine.values_list("state", flat=True))
    if states != {"succeeded"}:
        raise SystemExit(f"Not all executions succeeded: {states}")


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"Still not: {what}")
        time.sleep(LOOK_SECONDS)


def _lateness(installed: Installation, seconds: float, *, floods: int, megabytes: float) -> list[float]:
    """Of every line of a run, from the moment it was written until its follower had it."""
    from jobs.models import Execution

    say(f"following a run for {seconds:g} s, {f'beside {floods} that flood' if floods else 'quietly'}")
    ticking = _submit(installed, "ticker", TICKER, str(seconds), runtime="python")
    _wait_for(lambda: Execution.objects.filter(id=ticking, attempt__gt=0).exists(), "the run is placed")
    late: list[float] = []
    flooding: list[UUID] = []
    after, until = -1, time.monotonic() + seconds
    while True:
        if floods and time.monotonic() < until and _running(flooding) < floods:
            flooding.append(_submit(installed, "flood", WRITER, str(megabytes), runtime="python"))
        page = installed.client.log_page(str(ticking), attempt=1, after=after, wait_seconds=20)
        now = time.time()
        late += [now - float(line) for chunk in page.chunks for line in chunk.text.split()]
        if page.chunks:
            after = page.chunks[-1].sequence
        elif page.ended:
            break
    _wait_for_end(ticking, *flooding)
    return late


def _running(executions: Sequence[UUID]) -> int:
    from jobs.models import Execution

    return Execution.objects.filter(id__in=executions, ended_at__isnull=True).count()


def _rate(installed: Installation, runs: int, megabytes: float) -> float:
    """Megabytes a second from the first start to the last end, all of it stored."""
    from django.db.models import F, Max, Min, Sum
    from django.db.models.functions import Length

    from jobs.models import Execution, LogChunk

    executions = [_submit(installed, "writer", WRITER, str(megabytes), runtime="python") for _ in range(runs)]
    _wait_for_end(*executions)
    times = Execution.objects.filter(id__in=executions).aggregate(first=Min("started_at"), last=Max("ended_at"))
    stored = LogChunk.objects.filter(execution_id__in=executions).aggregate(bytes=Sum(Length(F("data"))))["bytes"]
    if stored != runs * int(megabytes * MEGABYTE):
        raise SystemExit(f"{stored} bytes were stored of {runs} times {megabytes} MB")
    return float(stored / MEGABYTE / (times["last"] - times["first"]).total_seconds())


def _floor(room: Laboratory, megabytes: float) -> float:
    """The same bytes, inserted by a loop that does nothing else: a statement, and a commit, for each megabyte."""
    import psycopg

    made: dict[str, Any] = {}
    exec(LINES, made)  # noqa: S102 - our own text, above
    block = made["make_block"]()
    chunks = [block[start : start + CHUNK_BYTES] for start in range(0, len(block), CHUNK_BYTES)]
    batch = chunks * (BATCH_BYTES // len(block))
    insert = (
        "INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)"
        " SELECT current_date, %s, 1, c.sequence, 'stdout', now(), c.data"
        " FROM unnest(%s::int[], %s::bytea[]) AS c (sequence, data)"
    )
    with psycopg.connect(room.database_url, autocommit=True) as connection:
        execution, sequence, began = uuid4(), 0, time.perf_counter()
        for _ in range(int(megabytes)):
            connection.execute(insert, (execution, list(range(sequence, sequence + len(batch))), batch))
            sequence += len(batch)
        seconds = time.perf_counter() - began
        connection.execute("DELETE FROM jobs_logchunk WHERE execution_id = %s", (execution,))
    return int(megabytes) / seconds


def _costs(room: Laboratory, runs: int) -> dict[str, object]:
    """What the worker asks of Postgres and of the object store for an execution of each kind, its program cached."""
    from benchmarks.counting_proxy import CountingProxy
    from benchmarks.counting_store import CountingStore

    say(f"counting what {runs} executions of each kind cost")
    kinds = {
        "no log": "true",
        "a line": "echo done",
        "1 MB of log": "head -c 1048576 /dev/zero | tr '\\0' x",
        "3 outputs": OUTPUTS,
    }
    counted: dict[str, object] = {}
    with CountingProxy(room.database_url) as database, CountingStore(os.environ["S3_ENDPOINT_URL"]) as store:
        through = {"DATABASE_URL": database.url, "S3_ENDPOINT_URL": store.url}
        with _installation(room, through) as installed:
            for kind, script in kinds.items():
                job = installed.client.submit_job({"name": kind, "runtime": "bash", "script": script})
                _wait_for_end(_first(job.id))
                answered, calls = database.answered(), store.calls()
                for _ in range(runs):
                    _wait_for_end(UUID(installed.client.execute_job(job.id).id))
                since = database.answered() - answered
                counted[kind] = {
                    "statements": round(since.statements / runs, 1),
                    "round_trips": round(since.round_trips / runs, 1),
                    "store_calls": round((store.calls() - calls) / runs, 1),
                }
    return counted


def _first(job_id: str) -> UUID:
    from jobs.models import Execution

    return Execution.objects.get(job_id=job_id).id


if __name__ == "__main__":
    sys.exit(main())
