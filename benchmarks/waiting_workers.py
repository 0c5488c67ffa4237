"""What two thousand REST workers that wait for work cost one web process, and how soon placed work reaches them.

`.venv/bin/python -m benchmarks.waiting_workers [--workers 2000] [--seconds 45] [--placed 40] [--renewing 1000]`

Real web, Postgres and Redis. Each worker has a connection of its own and asks again as soon as its claim is answered,
as a real worker does. Leases are long, so that nothing needs to be renewed. While all wait, a proxy counts the
statements of web. Then executions are placed one after the other, on workers all over the fleet; at last some workers
also renew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psutil

from benchmarks.counting_proxy import Answered, CountingProxy
from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

SECRET = "pun_" + "w" * 40
WAIT_SECONDS = 20
# A worker pauses so long after an empty answer that came early.
PAUSE_SECONDS = 0.5
# An answer that came this much before the end of the wait came early.
EARLY_SECONDS = 1.0
SETTLE_SECONDS = 25.0
RENEW_SECONDS = 5.0
CONNECTIONS_AT_ONCE = 50
ANSWER_SECONDS = 30.0


@dataclass
class RemoteFleet:
    """The workers, when those with an open claim sent it, and what the claims have brought."""

    workers: Sequence[UUID]
    asked_at: dict[UUID, float] = field(default_factory=dict)
    held: dict[UUID, list[dict[str, object]]] = field(default_factory=dict)
    early: int = 0
    refused: int = 0
    answers: int = 0
    renewals: int = 0
    received: dict[str, asyncio.Future[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    answers: int
    early: int
    renewals: int
    statements: Answered
    web_seconds: float
    postgres_seconds: float


@dataclass(frozen=True, slots=True)
class Phase:
    first: Sample
    last: Sample

    @property
    def seconds(self) -> float:
        return self.last.at - self.first.at

    @property
    def early(self) -> int:
        return self.last.early - self.first.early

    @property
    def statements_per_s(self) -> float:
        return (self.last.statements - self.first.statements).statements / self.seconds

    def shown(self) -> dict[str, float]:
        first, last, seconds = self.first, self.last, self.seconds
        return {
            "claims_answered_per_s": round((last.answers - first.answers) / seconds, 1),
            "renewals_per_s": round((last.renewals - first.renewals) / seconds, 1),
            "statements_per_s": round(self.statements_per_s, 2),
            "web_cores": round((last.web_seconds - first.web_seconds) / seconds, 3),
            "postgres_cores": round((last.postgres_seconds - first.postgres_seconds) / seconds, 3),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=45, help="of waiting")
    parser.add_argument("--placed", type=int, default=40, help="executions whose way to their worker is timed")
    parser.add_argument("--renewing", type=int, default=1000, help="workers that also renew, at the end; 0: none")
    options = parser.parse_args()
    about = machine()
    with laboratory() as room:
        from benchmarks.punctual_web import punctual_web
        from jobs.storage import s3

        s3.create_bucket()
        fleet = RemoteFleet(_register(options.workers))
        known = set(psutil.Process().children())
        with CountingProxy(room.database_url) as proxy, punctual_web(room, {"DATABASE_URL": proxy.url}) as client:
            (parent,) = set(psutil.Process().children()) - known
            web = max(parent.children(recursive=True), key=lambda one: one.memory_info().rss)

            def sample() -> Sample:
                postgres = sum(map(_cpu, _family(psutil.Process(room.postgres_pid))))
                counts = (fleet.answers, fleet.early, fleet.renewals)
                return Sample(time.monotonic(), *counts, proxy.answered(), _cpu(web), postgres)

            jobs = [
                UUID(client.submit_job({"name": f"j{number}", "runtime": "bash", "script": "true"}).id)
                for number in range(options.placed)
            ]
            before_mb = web.memory_info().rss / 2**20
            idle, waiting, delays, renewing = asyncio.run(_run(client.url, fleet, jobs, options, sample))
            memory_mb = web.memory_info().rss / 2**20
    return conclude(
        {
            "benchmark": "waiting_workers",
            **about,
            "workers": options.workers,
            "waiting": {"least": min(waiting), "most": max(waiting)},
            "idle": idle.shown(),
            "renewing": {"workers": options.renewing, **renewing.shown()} if renewing else {},
            "memory_before_mb": round(before_mb),
            "placed_to_received_p50_ms": round(1000 * percentile(delays, 0.5), 1),
        },
        {
            "least_waiting": Target(min(waiting), at_least=options.workers),
            "answered_early": Target(idle.early, at_most=0),
            "refused": Target(fleet.refused, at_most=0),
            "memory_mb": Target(memory_mb, at_most=500),
            "statements_per_s": Target(idle.statements_per_s, at_most=1),
            "placed_to_received_p99_ms": Target(1000 * percentile(delays, 0.99), at_most=500),
        },
    )


def _register(count: int) -> list[UUID]:
    from benchmarks.idle_fleet import register_fleet

    made = register_fleet(count, secret=SECRET, lease=timedelta(days=1), capabilities=["bash"], transport="rest")
    return [worker.id for worker in made]


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _cpu(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


async def _run(
    url: str, fleet: RemoteFleet, jobs: Sequence[UUID], options: argparse.Namespace, sample: Callable[[], Sample]
) -> tuple[Phase, list[int], list[float], Phase | None]:
    say(f"{len(fleet.workers):,} workers connect")
    gate = asyncio.Semaphore(CONNECTIONS_AT_ONCE)
    tasks = [asyncio.create_task(_wait_for_work(url, worker, fleet, gate)) for worker in fleet.workers]
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        say(f"{len(fleet.asked_at):,} wait")
        first, waiting = sample(), []
        while time.monotonic() < first.at + options.seconds:
            await asyncio.sleep(1)
            waiting.append(len(fleet.asked_at))
        idle = Phase(first, sample())
        say(f"{len(jobs)} executions are placed")
        delays = [await _place(job, fleet, number) for number, job in enumerate(jobs)]
        if not options.renewing:
            return idle, waiting, delays, None
        say(f"{options.renewing:,} workers also renew")
        tasks += [asyncio.create_task(_renew(url, worker, fleet)) for worker in fleet.workers[: options.renewing]]
        await asyncio.sleep(SETTLE_SECONDS)
        first = sample()
        await asyncio.sleep(options.seconds)
        return idle, waiting, delays, Phase(first, sample())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_work(url: str, worker: UUID, fleet: RemoteFleet, gate: asyncio.Semaphore) -> None:
    async with gate:
        connection = await _Connection.open(url, f"workers/{worker}/claim")
        await asyncio.sleep(0.2)
    held = fleet.held.setdefault(worker, [])
    try:
        while True:
            fleet.asked_at[worker] = asked_at = time.monotonic()
            status, answer = await connection.post({"incarnation": 1, "held": held, "wait_seconds": WAIT_SECONDS})
            now = time.monotonic()
            fleet.answers += 1
            fleet.refused += status != 200
            executions = answer["executions"] if status == 200 else []
            for execution in executions:
                fleet.received[execution["execution_id"]].set_result(now)
                held.append({"execution_id": execution["execution_id"], "attempt": 1})
            if not executions and now - asked_at < WAIT_SECONDS - EARLY_SECONDS:
                fleet.early += 1
                del fleet.asked_at[worker]
                await asyncio.sleep(PAUSE_SECONDS)
    finally:
        connection.close()


async def _renew(url: str, worker: UUID, fleet: RemoteFleet) -> None:
    await asyncio.sleep(random.uniform(0, RENEW_SECONDS))
    connection = await _Connection.open(url, f"workers/{worker}/heartbeat")
    usage = {"runs": 0, "taken": 0, "load": 0.5, "memory_available_mb": 4096}
    try:
        while True:
            due = time.monotonic() + RENEW_SECONDS
            status, _ = await connection.post({"incarnation": 1, "held": fleet.held[worker], "usage": usage})
            fleet.renewals += 1
            fleet.refused += status != 200
            await asyncio.sleep(due - time.monotonic())
    finally:
        connection.close()


class _Connection:
    """One connection that posts to one address."""

    def __init__(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._head = head
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str, address: str) -> _Connection:
        parts = urlsplit(url)
        lines = (
            f"POST /api/v1/{address} HTTP/1.1",
            f"Host: {parts.netloc}",
            f"Authorization: Bearer {SECRET}",
            "Content-Type: application/json",
        )
        return cls("\r\n".join(lines), *await asyncio.open_connection(parts.hostname, parts.port))

    async def post(self, body: object) -> tuple[int, Any]:
        content = json.dumps(body)
        self._writer.write(f"{self._head}\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode())
        status, answer = await _read_answer(self._reader)
        return status, json.loads(answer)

    def close(self) -> None:
        self._writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head[9:12]), await reader.readexactly(length)


async def _place(job: UUID, fleet: RemoteFleet, number: int) -> float:
    """Place the job's execution on a worker; return the seconds from the commit until the worker has it."""
    worker = fleet.workers[number * 997 % len(fleet.workers)]
    execution_id = await asyncio.to_thread(_find_execution, job)
    fleet.received[str(execution_id)] = received = asyncio.get_running_loop().create_future()
    placed_at = await asyncio.to_thread(_place_on, execution_id, worker)
    received_at: float = await asyncio.wait_for(received, ANSWER_SECONDS)
    return received_at - placed_at


def _find_execution(job: UUID) -> UUID:
    from jobs.db.transactions import releasing_connection
    from jobs.models import Execution

    with releasing_connection():
        return Execution.objects.values_list("id", flat=True).get(job_id=job)


def _place_on(execution_id: UUID, worker: UUID) -> float:
    from jobs.db.transactions import releasing_connection
    from jobs.db.wakeups import wake_worker
    from jobs.execution import transitions
    from jobs.execution.transitions import Placement

    with releasing_connection():
        assert len(transitions.place([Placement(execution_id, worker, 1)])) == 1
    placed_at = time.monotonic()
    wake_worker(worker)
    return placed_at


if __name__ == "__main__":
    sys.exit(main())
