"""Stock django-celery-beat under the same load: a plain `DatabaseScheduler` on the same Postgres server and Redis.

Only beat itself is measured. Making its rows is not, and its settings are the defaults or kinder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from benchmarks.laboratory import ROOT, Laboratory, say
from benchmarks.measured_process import MeasuredProcess
from benchmarks.population import INTERVAL_SECONDS, SPIKE, next_minute
from benchmarks.receiver import Receiver
from benchmarks.stock_rows import HERD, OVERDUE, STEADY, StockRows
from benchmarks.verdict import percentile

DATABASE = "stock"
REDIS_DATABASE = 1
QUEUE = "celery"
FIRST_SECONDS = 120.0
MEMORY_MB = 4096
BACKLOG = 1000
BACKLOG_SECONDS = 30.0
SPIKE_SECONDS = 60.0
GRACE_SECONDS = 10.0
LOOK_SECONDS = 0.05

Result = dict[str, object]


class NotSurvived(Exception):
    """The size is too much for it: it does not start in time, takes too much memory, or does not keep up."""

    def __init__(self, reason: str, measured: Result) -> None:
        super().__init__(reason)
        self.measured = measured


def largest_survived(sizes: Sequence[int], measure: Callable[[int], Result]) -> Result:
    """Its results at each size, up to the first that it does not survive."""
    results: dict[str, Result] = {}
    largest = 0
    for size in sorted(sizes):
        try:
            results[str(size)] = measure(size)
        except NotSurvived as refusal:
            say(f"stock django-celery-beat does not survive {size:,}: {refusal}")
            results[str(size)] = {**refusal.measured, "not_survived": str(refusal)}
            break
        largest = size
    return {"largest_survived": largest, "by_size": results}


class StockBeat:
    def __init__(self, room: Laboratory) -> None:
        self._room = room
        self._environment = {
            "DJANGO_SETTINGS_MODULE": "benchmarks.stock_settings",
            "DATABASE_URL": urlunsplit(urlsplit(room.database_url)._replace(path=f"/{DATABASE}")),
            "REDIS_URL": urlunsplit(urlsplit(room.redis_url)._replace(path=f"/{REDIS_DATABASE}")),
        }
        self._exits = ExitStack()

    def __enter__(self) -> StockBeat:
        with psycopg.connect(self._room.database_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        migrate = [sys.executable, "-m", "django", "migrate", "-v0"]
        subprocess.run(migrate, cwd=ROOT, env={**os.environ, **self._environment}, check=True, timeout=120)
        connection = psycopg.connect(self._environment["DATABASE_URL"], autocommit=True)
        self._exits.enter_context(connection)
        self._redis = self._exits.enter_context(redis.Redis.from_url(self._environment["REDIS_URL"]))
        self._rows = StockRows(connection)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    def backlog(self, size: int) -> Result:
        """Messages a second while much is due."""
        say(f"stock django-celery-beat: a backlog among {size:,} schedules")
        self._prepare(size)
        self._rows.arm_overdue(datetime.now(UTC), BACKLOG)
        with self._start() as run:
            first = run.wait_for_first()
            run.wait_for(OVERDUE, BACKLOG, until=time.time() + BACKLOG_SECONDS)
        times = sorted(run.first_arrivals(OVERDUE).values())
        return {
            "schedules": size + BACKLOG,
            "first_firing_s": round(first, 2),
            "sent_per_s": round((len(times) - 1) / max(times[-1] - times[0], 0.001), 1),
            "memory_mb": round(run.memory_mb),
        }

    def lateness(self, size: int, *, per_second: int, seconds: int) -> Result:
        """Start, memory, many due in one second, then a steady load; the instants leave it time to start."""
        say(f"stock django-celery-beat: starting with {size:,} schedules")
        self._prepare(size)
        self._rows.arm_overdue(datetime.now(UTC), 1)
        with self._start() as run:
            first = run.wait_for_first()
        result: Result = {"schedules": size, "first_firing_s": round(first, 2), "memory_mb": round(run.memory_mb)}

        self._prepare(size)
        herd_at = next_minute(datetime.now(UTC) + timedelta(seconds=10 + 1.5 * first))
        steady_at = herd_at + timedelta(seconds=SPIKE_SECONDS)
        self._rows.arm_spike(herd_at)
        self._rows.arm_steady(steady_at, per_second=per_second)
        result["schedules"] = size + SPIKE + per_second * INTERVAL_SECONDS
        say(f"stock django-celery-beat: {SPIKE:,} due at {herd_at:%H:%M:%S}, from a minute later {per_second} a second")
        with self._start() as run:
            run.wait_for(HERD, SPIKE, until=steady_at.timestamp())
            herd = run.first_arrivals(HERD)
            result["spike"] = _lateness([at - herd_at.timestamp() for at in herd.values()], SPIKE, SPIKE_SECONDS)
            result["memory_mb"] = round(run.memory_mb)
            if len(herd) < SPIKE:
                reason = f"sent {len(herd)} of {SPIKE} that were due in one second within {SPIKE_SECONDS:.0f} seconds"
                raise NotSurvived(reason, result)
            run.wait_for(STEADY, per_second * seconds, until=steady_at.timestamp() + seconds + GRACE_SECONDS)
        result["steady"] = _lateness(
            run.lateness_on_grid(steady_at.timestamp(), per_second=per_second, seconds=seconds),
            per_second * seconds,
            seconds + GRACE_SECONDS,
        )
        result["memory_mb"] = round(run.memory_mb)
        return result

    def _prepare(self, size: int) -> None:
        self._rows.disarm()
        self._rows.grow_to(size)
        self._redis.flushdb()

    def _start(self) -> StockRun:
        command = (sys.executable, "-m", "celery", "-A", "benchmarks.stock_app", "beat", "--pidfile=")
        return StockRun(MeasuredProcess("stock-beat", command, self._room.directory, self._environment))


class StockRun:
    """One life of a stock beat, and what it sent."""

    def __init__(self, beat: MeasuredProcess) -> None:
        self._beat = beat
        self._receiver = Receiver(beat.environment["REDIS_URL"], [QUEUE])
        self._arrivals: dict[str, list[float]] = defaultdict(list)
        self._exits = ExitStack()

    def __enter__(self) -> StockRun:
        self._exits.enter_context(self._receiver)
        self._exits.enter_context(self._beat)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    @property
    def memory_mb(self) -> float:
        return self._beat.memory_mb

    def wait_for_first(self) -> float:
        """Seconds from its start to its first message."""
        if not self.wait_for(OVERDUE, 1, until=self._beat.started_at + FIRST_SECONDS):
            measured: Result = {"memory_mb": round(self.memory_mb)}
            raise NotSurvived(f"sent nothing within {FIRST_SECONDS:.0f} seconds of its start", measured)
        return min(self.first_arrivals(OVERDUE).values()) - self._beat.started_at

    def wait_for(self, prefix: str, count: int, *, until: float) -> bool:
        while (came := self._count(prefix)) < count and time.time() < until:
            if not self._beat.is_running:
                raise NotSurvived(f"beat ended: {self._beat.log[-300:]}", {"memory_mb": round(self.memory_mb)})
            if self.memory_mb > MEMORY_MB:
                raise NotSurvived(f"took more than {MEMORY_MB} MB", {"memory_mb": round(self.memory_mb)})
            time.sleep(LOOK_SECONDS)
        return came >= count

    def first_arrivals(self, prefix: str) -> dict[str, float]:
        return {name: times[0] for name, times in self._arrivals.items() if name.startswith(prefix)}

    def lateness_on_grid(self, first: float, *, per_second: int, seconds: int) -> list[float]:
        """The nth message of each schedule against the nth instant that was asked for."""
        return [
            at - (first + int(name.removeprefix(STEADY)) / per_second + nth * INTERVAL_SECONDS)
            for name, times in self._arrivals.items()
            if name.startswith(STEADY)
            for nth, at in enumerate(times[: seconds // INTERVAL_SECONDS])
        ]

    def _count(self, prefix: str) -> int:
        for arrival in self._receiver.arrivals():
            self._arrivals[str(arrival.headers.get("periodic_task_name"))].append(arrival.at)
        return sum(len(times) for name, times in self._arrivals.items() if name.startswith(prefix))


def _lateness(late: Sequence[float], expected: int, waited: float) -> Result:
    """Those that never came were late for at least as long as they were waited for."""
    missing = max(0, expected - len(late))
    everyone = [*late, *[waited] * missing]
    return {
        "p50_ms": round(1000 * percentile(everyone, 0.5), 1),
        "p99_ms": round(1000 * percentile(everyone, 0.99), 1),
        "missing": missing,
    }
