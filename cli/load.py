"""A small load for a running server: tiny jobs are submitted, watched until they have ended, and deleted again.

Whatever happens, what was submitted is deleted; every number is taken from the server's own stamps, but for how long
an answer took.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from cli.answers import JsonObject
from cli.errors import CliError, WaitTimeoutError

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Execution

POLL_SECONDS = 0.5
ROOM_FOR_OTHERS = 200


@dataclass(frozen=True)
class Spread:
    """In milliseconds."""

    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        ordered = sorted(seconds)
        last = min(len(ordered) - 1, int(len(ordered) * 0.99))
        return cls(*(round(each * 1000, 1) for each in (statistics.median(ordered), ordered[last], ordered[-1])))


@dataclass(frozen=True)
class Measured:
    jobs: int
    failed: int  # ended in another way than succeeded
    submits_per_second: float
    ends_per_second: float
    submit: Spread  # how long the answer to a submission took, as seen from here
    submitted_to_started: Spread
    started_to_ended: Spread
    submitted_to_ended: Spread

    @property
    def raw(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True)
class Submitted:
    job_ids: tuple[str, ...]
    seconds: tuple[float, ...]
    lasted: float


def measure(client: Client, *, jobs: int, at_once: int, limit_seconds: float) -> Measured:
    made: list[str] = []
    with deleting(client, made, at_once):
        submitted = submit_all(client, jobs, at_once, made)
        return summarise(submitted, wait_for_all(client, submitted, limit_seconds))


def submit_all(client: Client, jobs: int, at_once: int, made: list[str]) -> Submitted:
    mark = secrets.token_hex(4)

    def submit(number: int) -> float:
        begun = time.monotonic()
        job = client.submit_job({"name": f"bench-{mark}-{number}", "runtime": "sh", "script": "exit 0\n"})
        made.append(job.id)
        return time.monotonic() - begun

    begun = time.monotonic()
    with ThreadPoolExecutor(at_once) as threads:
        seconds = tuple(threads.map(submit, range(jobs)))
    return Submitted(tuple(made), seconds, time.monotonic() - begun)


def wait_for_all(client: Client, submitted: Submitted, limit_seconds: float) -> list[Execution]:
    """Of each job its execution, once all have ended."""
    ours = set(submitted.job_ids)
    deadline = time.monotonic() + limit_seconds
    while True:
        # The newest first, and others may run jobs as well: as many again leave room for theirs.
        newest = client.executions(limit=2 * len(ours) + ROOM_FOR_OTHERS)
        ended = [each for each in newest if each.job_id in ours and each.has_ended]
        if len(ended) == len(ours):
            return ended
        if time.monotonic() >= deadline:
            missing = len(ours) - len(ended)
            raise WaitTimeoutError(
                f"{missing} of {len(ours)} jobs have not ended in time: ./punctual doctor tells more."
            )
        time.sleep(POLL_SECONDS)


def summarise(submitted: Submitted, executions: Sequence[Execution]) -> Measured:
    stamps = [_stamps(execution) for execution in executions]
    ran = [(fired, started, ended) for fired, started, ended in stamps if started is not None]
    if not ran:
        raise CliError("None of the jobs was started: ./punctual explain tells why an execution waits.")
    lasted = (max(ended for _, _, ended in ran) - min(fired for fired, _, _ in ran)).total_seconds()
    return Measured(
        jobs=len(submitted.job_ids),
        failed=sum(execution.status != "succeeded" for execution in executions),
        submits_per_second=round(len(submitted.job_ids) / max(submitted.lasted, 0.001), 1),
        ends_per_second=round(len(ran) / max(lasted, 0.001), 1),
        submit=Spread.of(submitted.seconds),
        submitted_to_started=Spread.of([(started - fired).total_seconds() for fired, started, _ in ran]),
        started_to_ended=Spread.of([(ended - started).total_seconds() for _, started, ended in ran]),
        submitted_to_ended=Spread.of([(ended - fired).total_seconds() for fired, _, ended in ran]),
    )


def _stamps(execution: Execution) -> tuple[datetime, datetime | None, datetime]:
    fired, started, ended = (execution.raw.get(name) for name in ("fired_at", "started_at", "ended_at"))
    return (
        datetime.fromisoformat(str(fired)),
        None if started is None else datetime.fromisoformat(str(started)),
        datetime.fromisoformat(str(ended)),
    )


@contextmanager
def deleting(client: Client, made: list[str], at_once: int) -> Iterator[None]:
    """Deletes also what Ctrl-C or a failure left half done."""
    try:
        yield
    finally:
        with ThreadPoolExecutor(at_once) as threads:
            left = [job_id for job_id in threads.map(lambda job_id: _delete(client, job_id), made) if job_id]
        if left:
            raise CliError(f"{len(left)} jobs of the measurement could not be deleted, such as {left[0]}: delete them.")


def _delete(client: Client, job_id: str) -> str | None:
    """The id of one that is still there."""
    try:
        client.delete_job(job_id)
    except CliError:
        return job_id
    return None
