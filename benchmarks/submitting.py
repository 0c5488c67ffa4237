"""How fast jobs are taken over HTTP, one a request and a thousand a request, beside a bare COPY of the same rows.

python -m benchmarks.submitting [--seconds 4] [--rounds 7] [--bulks 8] [--before CHECKOUT]
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psutil
import psycopg
from psycopg import sql as compose
from psycopg.types.json import Jsonb

from benchmarks.laboratory import ROOT, Laboratory, laboratory, say
from benchmarks.measured_process import MeasuredProcess
from benchmarks.verdict import Target, conclude, machine, percentile

CLIENTS = 4
JOBS_A_BULK = 1000
FLOOR_COPIES = 3
READY_SECONDS = 30.0
# A job with a schedule is a row in each of these.
TABLES = ("jobs_job", "jobs_jobversion", "jobs_schedule", "jobs_scheduleversion")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="of single submissions in each round")
    parser.add_argument("--rounds", type=int, default=7, help="of single submissions, and of bulk ones and bare copies")
    parser.add_argument("--bulks", type=int, default=8, help="requests of a thousand jobs in each round")
    parser.add_argument("--before", type=Path, help="another checkout, whose web server takes turns")
    options = parser.parse_args()
    about = machine()
    with laboratory() as room, ExitStack() as servers:
        token = _make_token()
        checkouts = {"now": ROOT} | ({"before": options.before.resolve()} if options.before else {})
        webs = {name: _start_web(name, path, room, servers) for name, path in checkouts.items()}
        for web in webs.values():
            _measure_single(room, web, token, 1)  # the first requests load what others find loaded
        say("single submissions")
        singles: dict[str, list[_SingleRound]] = {name: [] for name in webs}
        for _ in range(options.rounds):
            for name, web in webs.items():
                singles[name].append(_measure_single(room, web, token, options.seconds))
        say("bulk submissions and bare copies")
        body, port = _bulk_body(), webs["now"].port
        _Caller(port, token).post("jobs/bulk", body)
        rounds = [(_bulk(port, token, body, options.bulks), _floor(room)) for _ in range(options.rounds)]
    bulk_per_s = statistics.median(bulk for bulk, _ in rounds)
    single = {name: _summarise(turns) for name, turns in singles.items()}
    result = {
        "benchmark": "submitting",
        **about,
        "single": single,
        "clients": CLIENTS,
        "bulk_jobs_per_s": round(bulk_per_s),
        "bulk_rounds": [round(bulk) for bulk, _ in rounds],
        "floor_jobs_per_s": round(statistics.median(floor for _, floor in rounds)),
        "bulk_share_of_floor": round(statistics.median(bulk / floor for bulk, floor in rounds), 2),
    }
    targets = {
        "single_per_s": Target(single["now"]["per_s"], at_least=300),
        "bulk_jobs_per_s": Target(bulk_per_s, at_least=2000),
    }
    return conclude(result, targets)


@dataclass(frozen=True, slots=True)
class _Web:
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class _SingleRound:
    seconds: float
    times: list[float]
    web_seconds: float  # of CPU
    postgres_seconds: float


def _start_web(name: str, checkout: Path, room: Laboratory, servers: ExitStack) -> _Web:
    """As `./punctual up` starts it, with a process a core."""
    port = _free_port()
    # Python and granian import from the working directory.
    python = ("/usr/bin/env", "--chdir", str(checkout), sys.executable)
    argv = (*python, "-m", "scheduler_project.web", "--port", str(port), "--workers", "2")
    environment = {"ALLOWED_HOSTS": "127.0.0.1", "PUNCTUAL_REQUESTS_PER_MINUTE": "0"}
    process = servers.enter_context(MeasuredProcess(f"web-{name}", argv, room.directory, environment))
    _wait_ready(port)
    return _Web(port, process.pid)


def _measure_single(room: Laboratory, web: _Web, token: str, seconds: float) -> _SingleRound:
    pids = (web.pid, room.postgres_pid)
    before = [_read_cpu_seconds(pid) for pid in pids]
    began = time.monotonic()
    times = _single(web.port, token, seconds)
    took = time.monotonic() - began
    after = [_read_cpu_seconds(pid) for pid in pids]
    return _SingleRound(took, times, *(b - a for a, b in zip(before, after, strict=True)))


def _read_cpu_seconds(pid: int) -> float:
    """Of a process and its children, which live as long as it."""
    total = 0.0
    for process in (parent := psutil.Process(pid), *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _summarise(rounds: Sequence[_SingleRound]) -> dict[str, float]:
    times = [each for turn in rounds for each in turn.times]
    return {
        "per_s": round(statistics.median(len(turn.times) / turn.seconds for turn in rounds)),
        "p50_ms": round(percentile(times, 0.5) * 1000, 1),
        "p99_ms": round(percentile(times, 0.99) * 1000, 1),
        "web_cpu_ms": round(sum(turn.web_seconds for turn in rounds) / len(times) * 1000, 2),
        "postgres_cpu_ms": round(sum(turn.postgres_seconds for turn in rounds) / len(times) * 1000, 2),
    }


def _make_token() -> str:
    from django.contrib.auth.models import User

    from jobs.access.tokens import generate_secret, store_token
    from jobs.storage import s3

    s3.create_bucket()
    secret = generate_secret()
    store_token(owner=User.objects.create_user("benchmark"), name="benchmark", secret=secret)
    return secret


def _body(name: str) -> dict[str, object]:
    return {
        "name": name,
        "runtime": "python",
        "script": "print('hello')",
        "args": ["--day", "1"],
        "env": {"REGION": "eu"},
        "schedules": [{"cron": "0 3 * * *", "timezone": "Europe/Paris"}],
        "requirements": {"cpu": 0.5, "memory_mb": 256},
        "retry": {"max_attempts": 3},
    }


class _Caller:
    """One connection that is kept."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: bytes) -> None:
        self._connection.request("POST", f"/api/v1/{path}", body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 201, text[:500]


def _single(port: int, token: str, seconds: float) -> list[float]:
    times: list[float] = []
    until = time.monotonic() + seconds

    def call() -> None:
        caller = _Caller(port, token)
        body = json.dumps(_body("single")).encode()
        while time.monotonic() < until:
            began = time.monotonic()
            caller.post("jobs", body)
            times.append(time.monotonic() - began)

    _together([call] * CLIENTS)
    return times


def _bulk_body() -> bytes:
    return json.dumps({"jobs": [_body(f"bulk-{n}") for n in range(JOBS_A_BULK)]}).encode()


def _bulk(port: int, token: str, body: bytes, bulks: int) -> float:
    """Jobs a second. The kernel chooses the web process of each client: who is on the idler one sends more of them."""
    left = iter(range(bulks))

    def call() -> None:
        caller = _Caller(port, token)
        for _ in left:
            caller.post("jobs/bulk", body)

    began = time.monotonic()
    _together([call] * CLIENTS)
    return bulks * JOBS_A_BULK / (time.monotonic() - began)


def _together(calls: list[Callable[[], None]]) -> None:
    failed: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  (told to the main thread)
            failed.append(error)

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _floor(room: Laboratory) -> float:
    """The rows of a thousand jobs that bulk submission has stored, with new ids, a COPY a table, one transaction."""
    with psycopg.connect(room.database_url) as database:
        jobs = [row[0] for row in database.execute("SELECT id FROM jobs_job ORDER BY id DESC LIMIT 1000")]
        rates = []
        for _ in range(FLOOR_COPIES):
            renamed: dict[UUID, UUID] = {}  # so that copies refer to copies
            statements = [_copies(database, table, jobs, renamed) for table in TABLES]
            began = time.monotonic()
            with database.cursor() as cursor:
                for statement, rows in statements:
                    with cursor.copy(statement) as copy:
                        for row in rows:
                            copy.write_row(row)
            database.commit()
            rates.append(len(jobs) / (time.monotonic() - began))
    return statistics.median(rates)


def _copies(
    database: psycopg.Connection, table: str, jobs: list[UUID], renamed: dict[UUID, UUID]
) -> tuple[compose.Composed, list[list[object]]]:
    from jobs.models.ids import new_id

    where = {
        "jobs_job": "id = ANY(%(jobs)s)",
        "jobs_scheduleversion": "schedule_id IN (SELECT id FROM jobs_schedule WHERE job_id = ANY(%(jobs)s))",
    }.get(table, "job_id = ANY(%(jobs)s)")
    query = compose.SQL("SELECT * FROM {} WHERE {}").format(compose.Identifier(table), compose.SQL(where))
    found = database.execute(query, {"jobs": jobs})
    assert found.description is not None
    columns = [column.name for column in found.description]
    json_columns = {column.name for column in found.description if column.type_code == 3802}
    own = {"id", "job_id", "current_version_id", "schedule_id"}
    rows = [
        [
            renamed.setdefault(value, new_id())
            if name in own and isinstance(value, UUID)
            else Jsonb(value)
            if name in json_columns
            else value
            for name, value in zip(columns, row, strict=True)
        ]
        for row in found
    ]
    names = compose.SQL(", ").join(map(compose.Identifier, columns))
    statement = compose.SQL("COPY {} ({}) FROM STDIN").format(compose.Identifier(table), names)
    return statement, rows


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _wait_ready(port: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
        except OSError:
            assert time.monotonic() < deadline, "the web process does not answer"
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
