"""How long a page of each kind of list takes among a million jobs, five million executions, and in how many statements.

`.venv/bin/python -m benchmarks.listing [--jobs 1000000] [--executions 5000000] [--kept DIRECTORY] [--only WORDS]`
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import psutil

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from rest_framework.test import APIClient

    from benchmarks.catalogue import Catalogue

JOBS, EXECUTIONS = 1_000_000, 5_000_000
ROUNDS = 100
PAGE = 50
MAX_P99_MS = 100.0
# Of Linux; the module mmap has no names for them.
MAP_LOCKED, MAP_FAILED = 0x2000, ctypes.c_void_p(-1).value
# Whatever there is to be found: a page looks in so many steps at most.
MAX_STATEMENTS = 30
BARE = "SELECT * FROM jobs_execution WHERE id < %s ORDER BY id DESC LIMIT %s"


@dataclass(slots=True)
class Kind:
    """The pages of one list, and beside each a bare statement that reads as many executions in the order of ids."""

    times: list[float] = field(default_factory=list)
    bare_times: list[float] = field(default_factory=list)
    statements: list[int] = field(default_factory=list)
    rows: int = 0
    short: int = 0
    cpu_ms: float = 0.0
    database_cpu_ms: float = 0.0

    def shown(self) -> dict[str, float]:
        return {
            "p50_ms": round(percentile(self.times, 0.5), 1),
            "p99_ms": round(percentile(self.times, 0.99), 1),
            "bare_p99_ms": round(percentile(self.bare_times, 0.99), 1),
            "cpu_ms": round(self.cpu_ms / len(self.times), 1),
            "database_cpu_ms": round(self.database_cpu_ms / len(self.times), 1),
            "statements": max(self.statements),
            "rows_a_page": round(self.rows / len(self.times), 1),
            "short_pages": self.short,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--kept", type=Path, help="where the database is, or is made and stays: to measure again what took long to make"
    )
    parser.add_argument("--only", default="", help="only the lists whose address has this in it")
    options = parser.parse_args()
    result: dict[str, object] = {"benchmark": "listing", "through": "the view, in this process", **machine()}
    with laboratory(options.kept) as room:
        from benchmarks.catalogue import find_catalogue, indexed_afterwards, make_catalogue
        from jobs.models import Execution, Job

        catalogue = find_catalogue()
        if catalogue is None:
            say("rows")
            with indexed_afterwards():
                catalogue = make_catalogue(options.jobs, options.executions)
                say("indexes")
        result |= {"jobs": Job.objects.count(), "executions": Execution.objects.count()}
        say("into memory")
        held = _hold_in_memory(room.directory / "engines" / "postgres" / "data" / "base")
        result["held_in_memory_mb"] = held >> 20
        kinds = measure(catalogue, options.rounds, options.only)
    result["pages"] = {name: kind.shown() for name, kind in kinds.items()}
    p99s = {name: percentile(kind.times, 0.99) for name, kind in kinds.items()}
    result["over"] = {name: round(p99, 1) for name, p99 in p99s.items() if p99 > MAX_P99_MS}
    every = [each for kind in kinds.values() for each in kind.times]
    bare = [each for kind in kinds.values() for each in kind.bare_times]
    result["bare_ms"] = {"p50": round(percentile(bare, 0.5), 1), "p99": round(percentile(bare, 0.99), 1)}
    return conclude(
        result,
        {
            "p50_ms": Target(percentile(every, 0.5)),
            "p99_ms": Target(percentile(every, 0.99), at_most=MAX_P99_MS),
            "worst_p99_of_a_kind_ms": Target(max(p99s.values()), at_most=MAX_P99_MS),
            "most_statements": Target(max(max(kind.statements) for kind in kinds.values()), at_most=MAX_STATEMENTS),
        },
    )


def _hold_in_memory(directory: Path) -> int:
    """As where a server has been up for a while: the disk is not measured. Bytes that stay there until this ends.

    Reading is not enough where the kernel takes back what nobody has used for some seconds, as that of virtual machines
    may do. Whoever may not lock memory has it read, at least.
    """
    system, held = ctypes.CDLL(None, use_errno=True), 0
    system.mmap.restype = ctypes.c_void_p
    for path in directory.rglob("*"):
        if not path.is_file():
            continue
        with path.open("rb") as file:
            while file.read(1 << 20):
                pass
            size = ctypes.c_size_t(path.stat().st_size)
            if size.value:
                flags = mmap.MAP_SHARED | MAP_LOCKED
                got = system.mmap(None, size, mmap.PROT_READ, flags, file.fileno(), ctypes.c_long(0))
                held += 0 if got == MAP_FAILED else size.value
    return held


def measure(catalogue: Catalogue, rounds: int, only: str) -> dict[str, Kind]:
    from django.contrib.auth.models import User

    from benchmarks.catalogue import share_jobs

    import_module("scheduler_project.asgi")  # what the web server loads, and does once
    measured = {}
    staff, _ = User.objects.get_or_create(username="staff", defaults={"is_staff": True})
    for user in (staff, catalogue.many, catalogue.some, catalogue.few, share_jobs(catalogue)):
        client = _client(user)
        for address in _staff_lists(catalogue) if user.is_staff else OWN_LISTS:
            if only in address:
                kind = f"{user.username}: {address}"
                measured[kind] = _measure(client, address, rounds)
                say(f"{kind} {measured[kind].shown()}")
    return measured


def _client(user: User) -> APIClient:
    from django.conf import settings
    from rest_framework.test import APIClient

    from jobs.access.tokens import generate_secret, store_token
    from jobs.models import ApiToken

    settings.ALLOWED_HOSTS, settings.PUNCTUAL_REQUESTS_PER_MINUTE = ["testserver"], 0
    secret = generate_secret()
    ApiToken.objects.filter(owner=user).delete()
    store_token(owner=user, name="benchmark", secret=secret)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    client.get("/api/v1/queues")  # what a process does once is not a page's
    return client


OWN_LISTS = [
    "jobs",
    "jobs?status=failed",
    "jobs?status=succeeded",
    "jobs?search=report",
    "jobs?search=zebra",
    "jobs?ordering=name",
    "jobs?ordering=next_fire",
    "jobs?queue=rare",
    "executions",
    "executions?ordering=created",
    "executions?status=failed",
    "executions?status=running",
    "executions?queue=rare",
    "dead-letters",
    "artifacts",
    "calendars",
]


def _staff_lists(catalogue: Catalogue) -> list[str]:
    from jobs.definitions.job_status import JobStatus
    from jobs.domain.states import State

    week_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 7 * 86400))
    ten_days_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 10 * 86400))
    worker = catalogue.worker_id
    return [
        "jobs",
        *(f"jobs?status={status}" for status in JobStatus),
        *(f"jobs?ordering={order}" for order in ("created", "name", "-name", "next_fire", "-next_fire")),
        *(f"jobs?owner={owner}" for owner in ("many", "some", "few", "nobody")),
        "jobs?team=shared",
        "jobs?team=shared&ordering=name",
        *(f"jobs?search={part}" for part in ("report", "zebra", "nowhere", "12345", "123", "e", "12", "y r", "ж")),
        "jobs?search=zebra&ordering=name",
        "jobs?search=report&ordering=next_fire",
        "jobs?search=zebra&status=failed",
        "jobs?queue=rare",
        "jobs?queue=rare&priority=9",
        "jobs?priority=9",
        "jobs?priority=9&status=failed",
        "jobs?owner=few&ordering=next_fire",
        "jobs?ordering=name&status=failed",
        "jobs?deleted=true",
        "executions",
        *(f"executions?status={state}" for state in State),
        *(f"executions?ordering={order}" for order in ("created", "ended_at", "-ended_at")),
        *(f"executions?owner={owner}" for owner in ("many", "some", "few", "nobody")),
        "executions?team=shared",
        "executions?owner=few&status=failed",
        "executions?queue=rare",
        "executions?queue=rare&status=failed",
        f"executions?worker_id={worker}",
        f"executions?worker_id={worker}&status=failed",
        f"executions?scheduled_to={week_ago}",
        f"executions?scheduled_from={ten_days_ago}&scheduled_to={week_ago}&status=failed",
        f"executions?ended_from={week_ago}",
        f"executions?ended_from={ten_days_ago}&ended_to={week_ago}",
        f"executions?ended_to={week_ago}&ordering=-ended_at",
        "dead-letters",
        "workers",
        "queues",
    ]


def _measure(client: APIClient, address: str, rounds: int) -> Kind:
    """The first page and those after it, so that not every round finds its rows in memory."""
    from django.db import connection

    kind, statements, bare_id = Kind(), 0, UUID(int=2**128 - 1)
    backend = psutil.Process(connection.connection.info.backend_pid)
    first = following = f"/api/v1/{address}"

    def count(execute: Callable[..., object], *call: object) -> object:
        nonlocal statements
        statements += 1
        return execute(*call)

    for _ in range(rounds):
        began = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute(BARE, [bare_id, PAGE])
            bare_id = cursor.fetchall()[-1][0]
        kind.bare_times.append((time.perf_counter() - began) * 1000)
        statements, database, own = 0, _cpu(backend), time.process_time()
        with connection.execute_wrapper(count):
            began = time.perf_counter()
            response = client.get(following)
            kind.times.append((time.perf_counter() - began) * 1000)
        kind.cpu_ms += (time.process_time() - own) * 1000
        kind.database_cpu_ms += (_cpu(backend) - database) * 1000
        kind.statements.append(statements)
        assert response.status_code == 200, response.content
        page = response.json()
        kind.rows += len(page["results"])
        kind.short += page["next"] is not None and len(page["results"]) < PAGE
        following = page["next"] or first
    return kind


def _cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


if __name__ == "__main__":
    sys.exit(main())
