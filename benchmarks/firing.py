"""How fast due schedules become executions, and messages, among a million others.

`.venv/bin/python -m benchmarks.firing [--schedules 1000000] [--due 5000] [--messages 20000] [--stock 1000,10000,...]`

Rates are compared with bare SQL and with stock django-celery-beat in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.verdict import Target, conclude, machine

ROUNDS = 7
HANDS = 2
MESSAGE_ROUNDS = 3
MESSAGE_SECONDS = 60
BEAT_SECONDS = 60
# What any correct program must at least do: lock, insert and advance, in batches of the same size and with ids of the
# same kind, computing nothing.
FLOOR = """
WITH due AS MATERIALIZED (
    SELECT s.id, s.job_id, s.next_instant FROM jobs_schedule s
     WHERE s.next_fire_at <= statement_timestamp() ORDER BY s.next_fire_at LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
), inserted AS (
    INSERT INTO jobs_execution (id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state,
        attempt, tries_used, times_lost, rank, fired_at, ready_at)
    SELECT i.id, d.job_id, v.id, d.id, v.queue_id, 'schedule', i.id, d.next_instant, 'ready', 0, 0, 0,
           now(), now(), now()
      FROM due d JOIN jobs_job j ON j.id = d.job_id JOIN jobs_jobversion v ON v.id = j.current_version_id,
           LATERAL (SELECT uuidv7() AS id WHERE d.id IS NOT NULL) i)
UPDATE jobs_schedule s
   SET next_instant = due.next_instant + interval '3 days', next_fire_at = due.next_instant + interval '3 days',
       settled_count = s.settled_count + 1
  FROM due WHERE s.id = due.id
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """Firings a second, in the middle of several rounds; the share is the middle of the rounds' own shares."""

    floor: float
    real: float
    share: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=5000, help="schedules that one round fires, the same at every size")
    parser.add_argument("--messages", type=int, default=20_000, help="schedules that one beat is given at once")
    parser.add_argument(
        "--stock", type=_sizes, default=_sizes("1000,10000,100000,1000000"), help="sizes, or nothing to leave it out"
    )
    options = parser.parse_args()
    about = machine()
    with laboratory() as room:
        sizes = sorted({min(size, options.schedules) for size in (10_000, 100_000, options.schedules)})
        rates = _fire_at_sizes(sizes, options.due)
        to_message = _to_message(room, min(options.messages, options.schedules // 2))
        stock = _stock(room, options.stock)
    largest = rates[sizes[-1]]
    growth = rates[sizes[0]].real / largest.real
    result = {
        "benchmark": "firing",
        **about,
        "schedules": sizes[-1],
        "floor_per_s": round(largest.floor),
        "fired_per_s": round(largest.real),
        "microseconds_per_firing": {str(size): round(1e6 / rate.real, 1) for size, rate in rates.items()},
        "share_of_floor_by_size": {str(size): round(rate.share, 2) for size, rate in rates.items()},
        "to_message_per_s": [round(rate) for rate in to_message],
        "stock": stock,
    }
    return conclude(
        result,
        {
            "share_of_floor": Target(largest.share, at_least=0.5),
            "growth": Target(growth, at_most=1.5),
            "to_message_per_s": Target(statistics.median(to_message), at_least=3000),
        },
    )


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _fire_at_sizes(sizes: list[int], due: int) -> dict[int, Rates]:
    from benchmarks.population import make_schedules

    rates: dict[int, Rates] = {}
    made = 0
    for size in sizes:
        say(f"making {size:,} schedules")
        make_schedules(size - made, after=made)
        made = size
        say(f"firing among {size:,} schedules, beside the floor")
        rates[size] = _compare(min(due, size // 2))
        say(f"{rates[size].real:,.0f} firings a second, {rates[size].share:.2f} of the floor")
    return rates


def _compare(due: int) -> Rates:
    floors: list[float] = []
    reals: list[float] = []
    for number in range(-1, ROUNDS):
        # In turn, and who begins changes: what the machine does meanwhile meets both alike.
        runs = [(floors, _fire_floor), (reals, _fire)]
        for rates, act in runs if number % 2 else reversed(runs):
            rate = _rate(due, act, f"{number} {act.__name__}")
            if number >= 0:  # The first round warms caches.
                rates.append(rate)
    shares = [real / floor for real, floor in zip(reals, floors, strict=True)]
    return Rates(statistics.median(floors), statistics.median(reals), statistics.median(shares))


def _rate(due: int, act: Callable[[], int], salt: str) -> float:
    from benchmarks.population import make_due, settle_tables

    _forget_executions()
    make_due(due, salt=salt)
    settle_tables()
    started = time.perf_counter()
    fired = act()
    elapsed = time.perf_counter() - started
    assert fired == due, f"{fired} schedules fired of {due} that were due"
    return due / elapsed


def _forget_executions() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_execution CASCADE")


def _fire() -> int:
    """With two hands, as a beat does it when a batch is full."""
    with ThreadPoolExecutor(HANDS) as hands:
        return sum(hand.result() for hand in [hands.submit(_fire_all) for _ in range(HANDS)])


def _fire_all() -> int:
    from jobs.db.transactions import releasing_connection
    from jobs.scheduling.firing import fire_due_schedules

    fired = 0
    with releasing_connection():
        while True:
            result = fire_due_schedules()
            fired += result.fired
            if not result.schedules:
                return fired


def _fire_floor() -> int:
    from django.db import connection, transaction

    from jobs.domain import limits

    fired = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(FLOOR, {"limit": limits.FIRE_BATCH_SCHEDULES})
            if not cursor.rowcount:
                return fired
            fired += cursor.rowcount


def _to_message(room: Laboratory, due: int) -> list[float]:
    """Executions a second that one real beat turns from due into messages in Redis, through the real placement."""
    from benchmarks.population import make_due
    from benchmarks.punctual_beat import punctual_beat
    from benchmarks.synthetic_workers import SyntheticWorkers
    from jobs.db.wakeups import wake_beat

    say(f"a beat turns {due:,} due schedules into messages, {MESSAGE_ROUNDS} times")
    rates = []
    _forget_executions()
    make_due(1, salt="first")
    with SyntheticWorkers(room) as workers, punctual_beat(room) as beat:
        if not workers.wait_for(1, seconds=BEAT_SECONDS):
            raise SystemExit(f"Beat sent nothing within {BEAT_SECONDS} seconds:\n{beat.log[-2000:]}")
        for number in range(MESSAGE_ROUNDS):
            _forget_executions()
            before = len(workers.arrived)
            make_due(due, salt=f"message {number}")
            committed = time.time()
            wake_beat()
            complete = workers.wait_for(before + due, seconds=MESSAGE_SECONDS)
            arrived = [at for at in workers.arrived.values() if at > committed]
            rates.append(len(arrived) / (max(arrived) - committed if complete else MESSAGE_SECONDS))
            say(f"{rates[-1]:,.0f} messages a second")
            if not complete:
                say(f"only {len(arrived):,} within {MESSAGE_SECONDS} seconds: no further round")
                break
    return rates


def _stock(room: Laboratory, sizes: list[int]) -> dict[str, object]:
    """The same from stock django-celery-beat: messages a second while a backlog is due."""
    from benchmarks.stock import StockBeat, largest_survived

    if not sizes:
        return {}
    with StockBeat(room) as stock:
        return largest_survived(sizes, stock.backlog)


if __name__ == "__main__":
    sys.exit(main())
