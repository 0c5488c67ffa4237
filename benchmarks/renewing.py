"""What thousands of idle workers that renew their leases cost Postgres and beat.

`.venv/bin/python -m benchmarks.renewing [--workers 5000] [--seconds 30] [--http-workers 1000]`

Each worker renews at the interval of the settings, evenly spread, through the calls of a real worker: to Postgres, as
Celery workers do, and then for a while over HTTP, as REST workers do. The floor is the bare UPDATE of a lease by its
primary key, one commit for each, at the same rate.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import django
import psutil

from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

PROCESSES = 2
THREADS = 8
WARM_UP_SECONDS = 6.0
# Nothing renews between two rounds.
REGISTRATION_LEASE_SECONDS = 300
TOKEN = "pun_" + "r" * 40
BARE = "UPDATE jobs_worker SET lease_until = clock_timestamp() + interval '300 s' WHERE id = %s AND incarnation = %s"

Fleet = Sequence[tuple[UUID, int]]


@dataclass(frozen=True, slots=True)
class Round:
    """One kind of renewal at its rate, with the CPU of each process as a share of one core."""

    renewed: int
    seconds: float
    late_p99_ms: float
    cores: dict[str, float]
    commits: int
    wal_bytes: int

    def shown(self) -> dict[str, object]:
        return {
            "renewals_per_s": round(self.renewed / self.seconds),
            "late_p99_ms": round(self.late_p99_ms, 1),
            "cores": {name: round(share, 3) for name, share in self.cores.items()},
            "postgres_ms_per_renewal": round(1000 * self.cores["postgres"] * self.seconds / self.renewed, 3),
            "commits_per_renewal": round(self.commits / self.renewed, 2),
            "wal_bytes_per_renewal": round(self.wal_bytes / self.renewed),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=30, help="of each round")
    parser.add_argument("--http-workers", type=int, default=1000, help="that renew over HTTP; 0 leaves them out")
    options = parser.parse_args()
    about = machine()
    with laboratory() as room:
        from django.conf import settings

        from benchmarks.punctual_beat import punctual_beat

        interval = float(settings.PUNCTUAL_RENEW_SECONDS)
        fleet = _register(options.workers)
        with punctual_beat(room) as beat:
            pids = {"beat": beat.pid, "postgres": room.postgres_pid, "redis": room.redis_pid}
            bare = _measure(pids, fleet, "bare", interval, options.seconds)
            direct = _measure(pids, fleet, "direct", interval, options.seconds)
            lost = _count_lost()
            http = (
                _measure_http(pids, fleet[: options.http_workers], interval, room, options.seconds)
                if options.http_workers
                else None
            )
        for line in beat.complaints()[:5]:
            say(f"complaint: {line}")
    wanted = options.workers / interval
    # A machine that cannot keep the rate up has rendered fewer renewals: the share is that at the full rate.
    share = direct.cores["postgres"] * wanted * direct.seconds / direct.renewed + direct.cores["beat"]
    return conclude(
        {
            "benchmark": "renewing",
            **about,
            "workers": options.workers,
            "renew_seconds": interval,
            "bare": bare.shown(),
            "direct": direct.shown(),
            "http": http.shown() if http else {},
        },
        {
            "postgres_and_beat_cores": Target(share, at_most=0.3),
            "share_of_floor": Target(
                bare.cores["postgres"] * direct.renewed / (direct.cores["postgres"] * bare.renewed), at_least=0.4
            ),
            "share_of_rate": Target(direct.renewed / direct.seconds / wanted, at_least=0.9),
            "lost": Target(lost, at_most=0),
        },
    )


def _register(count: int) -> Fleet:
    from benchmarks.idle_fleet import register_fleet

    names = ["bash", "sh", "python", "perl", "binary"]
    made = register_fleet(
        count,
        secret=TOKEN,
        lease=timedelta(seconds=REGISTRATION_LEASE_SECONDS),
        capabilities=names,
        details={"kernel": "6.12.1-amd64", "versions": {name: f"/usr/bin/{name}" for name in names}},
    )
    return [(each.id, each.incarnation) for each in made]


def _count_lost() -> int:
    from jobs.models import Worker

    return Worker.objects.exclude(status="online").count()


def _measure_http(pids: Mapping[str, int], fleet: Fleet, interval: float, room: Laboratory, seconds: float) -> Round:
    from benchmarks.punctual_web import punctual_web

    known = set(psutil.Process().children())
    with punctual_web(room) as client:
        (web,) = set(psutil.Process().children()) - known
        return _measure({**pids, "web": web.pid}, fleet, client.url, interval, seconds)


def _measure(pids: Mapping[str, int], fleet: Fleet, way: str, interval: float, seconds: float) -> Round:
    say(f"{len(fleet):,} workers renew every {interval:g} s for {seconds:g} s: {way}")
    context = multiprocessing.get_context("spawn")
    began = time.time() + WARM_UP_SECONDS
    with context.Pool(PROCESSES) as pool:
        shares = [fleet[number::PROCESSES] for number in range(PROCESSES)]
        arguments = [(share, way, interval, began, began + seconds) for share in shares]
        running = pool.starmap_async(renew_for_a_while, arguments)
        time.sleep(max(0.0, began - time.time()))
        before, (commits, position), started = _consumed(pids), _written(), time.monotonic()
        time.sleep(seconds)
        after, (commits_after, position_after) = _consumed(pids), _written()
        took = time.monotonic() - started
        late = [each for share in running.get(timeout=120) for each in share]
    cores = {name: (after[name] - before[name]) / took for name in after}
    return Round(
        len(late), took, 1000 * percentile(late, 0.99), cores, commits_after - commits, position_after - position
    )


def _consumed(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds of each process with its children, including those that have ended."""
    total = dict.fromkeys(pids, 0.0)
    for name, pid in pids.items():
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total[name] += sum(one.cpu_times()[:4])
    return total


def _written() -> tuple[int, int]:
    """The next number of a transaction, and the position of the log."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_lsn() - '0/0'")
        commits, position = cursor.fetchone()
    return int(commits), int(position)


def renew_for_a_while(fleet: Fleet, way: str, interval: float, began: float, until: float) -> list[float]:
    """Renew for these workers from now on; return how late each renewal since `began` was done."""
    django.setup()
    renew = _make_renewal(way)
    start = time.time()
    count = len(fleet)

    def work(thread: int) -> list[float]:
        late = []
        number = thread
        while (due := start + interval * number / count) < until:
            time.sleep(max(0.0, due - time.time()))
            renew(*fleet[number % count])
            done = time.time()
            if began <= done <= until:
                late.append(done - due)
            if done > until:
                break
            number += THREADS
        return late

    with ThreadPoolExecutor(THREADS) as threads:
        return [each for late in threads.map(work, range(THREADS)) for each in late]


def _make_renewal(way: str) -> Callable[[UUID, int], object]:
    from django.db import connection

    from jobs.domain.worker_protocol import Registration, WorkerUsage
    from workers.control_plane.base import ControlPlane
    from workers.control_plane.direct import DirectControlPlane
    from workers.control_plane.http import RestTransport
    from workers.control_plane.rest import RestControlPlane

    if way == "bare":

        def renew_bare(worker_id: UUID, incarnation: int) -> None:
            with connection.preparing_cursor() as cursor:  # type: ignore[attr-defined]  # of our backend
                cursor.execute(BARE, [worker_id, incarnation])

        return renew_bare
    usage = WorkerUsage(runs=0, taken=0, load=0.25, memory_available_mb=4096)
    plane: ControlPlane = DirectControlPlane()
    if way != "direct":
        plane = remote = RestControlPlane(RestTransport(way, TOKEN))
        remote.lease_seconds = remote.read_terms().lease_seconds
    return lambda worker_id, incarnation: plane.renew(Registration(worker_id, incarnation), [], usage)


if __name__ == "__main__":
    sys.exit(main())
