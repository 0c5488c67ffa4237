"""What a thousand who poll one running execution cost Postgres, and how far behind the answers are.

`.venv/bin/python -m benchmarks.polling [--pollers 1000] [--seconds 20] [--pause 0.5]`

Real web, Postgres and Redis; each poller has a connection of its own, asks, and asks again a pause after the answer.
Meanwhile the execution tells its progress four times a second, and in the end it ends. An answer is behind by the time
from the commit of what it does not show yet to the moment at which it was asked for. The same without the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from benchmarks.counting_proxy import Answered, CountingProxy
from benchmarks.laboratory import Laboratory, laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from jobs.domain.worker_protocol import AttemptFence

CHANGE_SECONDS = 0.25
AFTER_THE_END_SECONDS = 3.0
ENDED = 10**9


@dataclass
class Seen:
    """Of one round: when each change was committed, and of every answer when it was asked for and what it showed."""

    committed: list[float] = field(default_factory=list)
    answers: list[tuple[float, float, int]] = field(default_factory=list)  # asked at, seconds, shown
    ended_at: float = 0.0
    failed: int = 0

    def behind(self) -> list[float]:
        """Of every answer while it ran, how long before it was asked for the first thing that it lacks was there."""
        late = []
        for asked_at, _, shown in self.answers:
            due = bisect_right(self.committed, asked_at)
            if asked_at < self.ended_at and shown < due:
                late.append(asked_at - self.committed[shown])
        return late

    def behind_end(self) -> list[float]:
        return [at - self.ended_at for at, _, shown in self.answers if at > self.ended_at and shown != ENDED]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pollers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause", type=float, default=0.5, help="of a poller after each answer")
    options = parser.parse_args()
    about = machine()
    with laboratory() as room:
        from jobs.storage import s3

        s3.create_bucket()
        rounds = {name: _round(room, name, options, {"PUNCTUAL_STATUS_CACHE_SECONDS": kept}) for name, kept in KINDS}
    cached, bare = rounds["cached"], rounds["without"]
    return conclude(
        {"benchmark": "polling", **about, "pollers": options.pollers, **rounds},
        {
            # The execution, the token and, every ten seconds, the owner's limit.
            "statements_per_s": Target(cached["statements_per_s"], at_most=2.5),
            "behind_most_ms": Target(cached["behind_most_ms"], at_most=1000),
            "behind_end_most_ms": Target(cached["behind_end_most_ms"], at_most=0),
            "failed": Target(cached["failed"] + bare["failed"], at_most=0),
            "share_of_statements": Target(
                cached["statements_per_request"] / bare["statements_per_request"], at_most=0.1
            ),
        },
    )


KINDS = (("cached", "1"), ("without", "0"))


def _round(room: Laboratory, name: str, options: argparse.Namespace, settings: Mapping[str, str]) -> dict[str, float]:
    from benchmarks.punctual_web import TOKEN, punctual_web

    seen = Seen()
    with (
        CountingProxy(room.database_url) as proxy,
        punctual_web(room, {"DATABASE_URL": proxy.url, **settings}) as client,
    ):
        job = client.submit_job({"name": f"polled {name}", "runtime": "bash", "script": "true"})
        hold = _start(UUID(job.id))
        say(f"{options.pollers} poll for {options.seconds:g} s, {name}")
        changing = threading.Thread(target=_change, args=(hold, seen, options.seconds))
        address = f"{client.url}/api/v1/executions/{hold.execution_id}"
        counted: list[tuple[float, Answered]] = []
        polling = _poll(address, TOKEN, seen, options, lambda: counted.append((time.monotonic(), proxy.answered())))
        changing.start()
        asyncio.run(polling)
        changing.join()
    (began, before), (over, after) = counted
    statements, seconds = (after - before).statements, over - began
    late, took = seen.behind(), [spent for _, spent, _ in seen.answers]
    return {
        "requests": len(seen.answers),
        "requests_per_s": round(len(seen.answers) / seconds, 1),
        "statements_per_s": round(statements / seconds, 2),
        "statements_per_request": statements / len(seen.answers),
        "answer_p50_ms": round(1000 * percentile(took, 0.5), 1),
        "answer_p99_ms": round(1000 * percentile(took, 0.99), 1),
        "changes": len(seen.committed),
        "behind_most_ms": round(1000 * max(late, default=0), 1),
        "behind_end_most_ms": round(1000 * max(seen.behind_end(), default=0), 1),
        "failed": seen.failed,
    }


def _start(job_id: UUID) -> AttemptFence:
    """Its execution runs, as far as anybody can tell."""
    from jobs.domain.worker_protocol import AttemptFence, WorkerOffer
    from jobs.execution import transitions
    from jobs.execution.transitions import Placement
    from jobs.fleet.leases import register_worker
    from jobs.models import Execution

    offer = WorkerOffer(f"nobody-{job_id}", uuid4(), "default", "here", 1, 1.0, 1024, 1024, ["bash"], {})
    worker = register_worker(offer)
    execution = Execution.objects.get(job_id=job_id)
    transitions.place([Placement(execution.id, worker.worker_id, worker.incarnation)])
    hold = AttemptFence(execution.id, 1, worker.worker_id, worker.incarnation)
    transitions.claim(hold)
    transitions.start(hold, {})
    return hold


def _change(hold: AttemptFence, seen: Seen, seconds: float) -> None:
    """Past the proxy: what is counted is what those who poll cost."""
    from django.db import connection

    from jobs.domain.states import Reason
    from jobs.domain.worker_protocol import Progress, RunReport
    from jobs.execution.attempts import finish_attempt
    from jobs.logs.store import append_chunks

    until = time.time() + seconds
    while time.time() < until:
        append_chunks(hold, [], Progress(None, str(len(seen.committed) + 1)))
        seen.committed.append(time.time())
        time.sleep(CHANGE_SECONDS)
    finish_attempt(hold, RunReport(Reason.EXIT, exit_code=0))
    seen.ended_at = time.time()
    connection.close()


async def _poll(address: str, token: str, seen: Seen, options: argparse.Namespace, note: Callable[[], None]) -> None:
    parts = urlsplit(address)
    lines = (f"GET {parts.path} HTTP/1.1", f"Host: {parts.netloc}", f"Authorization: Bearer {token}", "", "")
    question = "\r\n".join(lines).encode()
    until = time.time() + options.seconds + AFTER_THE_END_SECONDS

    async def poller(number: int) -> None:
        await asyncio.sleep(options.pause * number / options.pollers)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        while time.time() < until:
            asked_at = time.time()
            writer.write(question)
            status, body = await _answer(reader)
            if status != 200:
                seen.failed += 1
            else:
                seen.answers.append((asked_at, time.time() - asked_at, _read_progress(body)))
            await asyncio.sleep(options.pause)
        writer.close()

    note()
    await asyncio.gather(*(poller(number) for number in range(options.pollers)))
    note()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head[9:12]), await reader.readexactly(length)


def _read_progress(body: bytes) -> int:
    execution = json.loads(body)
    if execution["ended_at"] is not None:
        return ENDED
    return 0 if execution["progress"] is None else int(execution["progress"]["message"])


if __name__ == "__main__":
    sys.exit(main())
