"""Rounds of many executions at once: their rate compared with the floor and the peer, and their cost.

Import this inside the laboratory, where Django is ready.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from django.db import transaction
from django.db.models import Max, Min

from benchmarks.bare_sandbox import BareSandbox
from benchmarks.consumption import consumed
from benchmarks.laboratory import Laboratory, say
from benchmarks.measured_process import MeasuredProcess
from benchmarks.plain_celery import PlainCelery
from benchmarks.population import make_due, settle_tables
from benchmarks.write_ahead_log import WriteAheadLog
from jobs.db.wakeups import wake_beat
from jobs.models import Execution
from jobs.models.ids import new_id

T = TypeVar("T")

ROUND_SECONDS = 300
LOOK_SECONDS = 0.1
# Less is beat's periodic work.
SHOWN_TUPLES = 0.05
# Those that may still work on executions that have ended.
DEFERRING = ("beat", "worker", "postgres")


@dataclass(frozen=True, slots=True)
class Installation:
    room: Laboratory
    beat: MeasuredProcess
    worker: MeasuredProcess

    @property
    def is_running(self) -> bool:
        return self.beat.is_running and self.worker.is_running

    @property
    def logs(self) -> str:
        return f"{self.beat.log[-2000:]}\n{self.worker.log[-2000:]}"


@dataclass(frozen=True, slots=True)
class Peers:
    """What the same rounds measure on the same machine."""

    bare: BareSandbox
    at_once: int
    plain: PlainCelery


@dataclass(frozen=True, slots=True)
class Reading:
    cpu: Mapping[str, float]
    position: str


@dataclass(frozen=True, slots=True)
class Round:
    real: float
    bare: float
    plain: float
    cpu_ms: Mapping[str, float]  # of one execution
    cpu_ms_afterwards: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Every figure is the median of the rounds, but what was written, which is a mean."""

    rounds: Sequence[Round]
    written: Mapping[str, float]
    written_to: Mapping[str, float]

    def median(self, figure: Callable[[Round], float]) -> float:
        return statistics.median(map(figure, self.rounds))

    @property
    def share_of_bare(self) -> float:
        return self.median(lambda one: one.real / one.bare)

    @property
    def share_of_plain(self) -> float:
        return self.median(lambda one: one.real / one.plain)

    @property
    def cpu_ms(self) -> Mapping[str, float]:
        names = self.rounds[0].cpu_ms
        return {name: round(statistics.median(one.cpu_ms[name] for one in self.rounds), 2) for name in names}

    @property
    def control_ms(self) -> float:
        """The CPU of everything but the sandboxes."""
        return sum(milliseconds for name, milliseconds in self.cpu_ms.items() if name != "sandboxes")

    @property
    def control(self) -> float:
        """The same in shares of the sandboxes' own CPU, which shows how fast the machine was meanwhile."""
        return self.control_ms / self.cpu_ms["sandboxes"]

    def shown(self) -> dict[str, object]:
        return {
            "runs_per_s": round(self.median(lambda one: one.real)),
            "bare_at_best_per_s": round(self.median(lambda one: one.bare)),
            "plain_celery_per_s": round(self.median(lambda one: one.plain)),
            "shares_of_bare": [round(one.real / one.bare, 2) for one in self.rounds],
            "shares_of_plain_celery": [round(one.real / one.plain, 2) for one in self.rounds],
            "cpu_ms_per_execution": self.cpu_ms,
            "cpu_ms_afterwards": round(self.median(lambda one: one.cpu_ms_afterwards), 2),
            "written_per_execution": self.written,
            "tuples_per_execution": {
                name: number for name, number in self.written_to.items() if number >= SHOWN_TUPLES
            },
        }


def compare(installed: Installation, peers: Peers, runs: int, rounds: int) -> Rates:
    """The first round, which warms caches, does not count."""
    measured: list[Round] = []
    totals: Counter[str] = Counter()
    tuples: Counter[str] = Counter()
    with WriteAheadLog(installed.room.superuser_url) as log:
        log.checkpoint()
        for number in range(-1, rounds):
            settle_tables()
            real, before = run_all(installed, runs, salt=f"round {number}", read=partial(_read, installed, log))
            after = _read(installed, log)
            bare, plain = peers.bare.rate(runs, peers.at_once), peers.plain.rate(runs)
            later = _read(installed, log)
            say(f"{real:.0f} runs a second, {bare:.0f} bare ones, {plain:.0f} plain Celery tasks")
            if number < 0:
                continue
            cpu_ms = {name: 1000 * (seconds - before.cpu[name]) / runs for name, seconds in after.cpu.items()}
            deferred = sum(later.cpu[name] - after.cpu[name] for name in DEFERRING)
            measured.append(Round(real, bare, plain, cpu_ms, 1000 * deferred / runs))
            kinds, relations = log.count(before.position, after.position)
            kinds["wal_bytes_afterwards"] = log.count(after.position, later.position)[0]["wal_bytes"]
            totals.update(kinds)
            tuples.update(relations)
    executions = runs * rounds
    return Rates(measured, _per_execution(totals, executions), _per_execution(tuples, executions))


def _read(installed: Installation, log: WriteAheadLog) -> Reading:
    return Reading(consumed(installed.room, installed.beat, installed.worker), log.position())


def _per_execution(counted: Counter[str], executions: int) -> dict[str, float]:
    shares = {name: round(number / executions, 2) for name, number in counted.most_common()}
    return {name: share for name, share in shares.items() if share}


def run_all(installed: Installation, runs: int, *, salt: str, read: Callable[[], T]) -> tuple[float, T]:
    """Executions a second, from the first firing to the last end, and what `read` returned just before.

    It reads inside the transaction that makes schedules due: afterwards beat may already have noticed them.
    """
    first_id = new_id()
    with transaction.atomic():
        make_due(runs, salt=salt, moment=datetime.now(UTC))
        before = read()
    wake_beat()
    mine = Execution.objects.filter(id__gte=first_id)
    deadline = time.monotonic() + ROUND_SECONDS
    while mine.filter(ended_at__isnull=False).count() < runs:
        if time.monotonic() > deadline or not installed.is_running:
            raise SystemExit(f"Not all executions ended within {ROUND_SECONDS} seconds:\n{installed.logs}")
        time.sleep(LOOK_SECONDS)
    states = list(mine.values_list("state", flat=True))
    assert states == ["succeeded"] * runs, f"{len(states)} executions, not all succeeded"
    times = mine.aggregate(first=Min("fired_at"), last=Max("ended_at"))
    return runs / float((times["last"] - times["first"]).total_seconds()), before
