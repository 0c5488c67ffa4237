"""Real beats and workers with a short lease: a worker that is frozen, a database that is away, briefly and for long.

The jobs keep the journal: every line of their logs says which attempt wrote it, and when.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest
from django.db import connection
from rest_framework.test import APIClient

from jobs.models import Attempt, Execution, ExecutionEvent, LogChunk, Queue, Worker
from jobs.services.tokens import new_secret, store_token
from scheduler_project.embedded.engines import Engines
from tests.acceptance.stack import ROOT
from tests.factories import make_user
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# The first attempt goes on for ever, unless it is told when to end; later ones say that they were there.
JOURNAL = """
note() { echo "$PUNCTUAL_ATTEMPT $(date +%s.%N)"; }
i=0
while note; [ $PUNCTUAL_ATTEMPT = 1 ] && [ $i -lt $1 ]; do sleep 0.1; i=$((i+1)); done
"""
FOREVER = 100_000

Start = Callable[..., "Started"]


class Started:
    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self.process, self._log = name, process, log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """The worker, its launcher, and all that is in its sandboxes; without the guardian."""
        worker = psutil.Process(self.process.pid)
        found = [worker]
        for child in worker.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if not any("guardian_process" in word for word in child.cmdline()):
                    found.append(child)
        return found


@pytest.fixture
def start(engines: Engines, bucket: None, tmp_path: Path) -> Iterator[Start]:
    """Starts Celery's processes on the test's own database, each with a log of its own."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    with ExitStack() as ends:

        def start(role: str, name: str, lease: float, *words: str) -> Started:
            log = tmp_path / f"{name}.log"
            environment = {
                **os.environ,
                "DATABASE_URL": urlunsplit(database),
                "PUNCTUAL_LEASE_SECONDS": str(lease),
                "PUNCTUAL_RENEW_SECONDS": "1",
                "PUNCTUAL_WORKER_NAME": name,
                "PUNCTUAL_WORKER_STATE_DIR": str(tmp_path / name),
                "PUNCTUAL_WORKER_DRAIN_SECONDS": "0",
            }
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "celery", "-A", "scheduler_project", role, *words],
                    cwd=ROOT,
                    env=environment,
                    stdout=output,
                    stderr=output,
                )
            ends.callback(end, process)
            return Started(name, process, log)

        yield start


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(30)
        raise


def start_beat_and_workers(start: Start, lease: float, *names: str) -> dict[str, Started]:
    start("beat", "beat", lease, "--pidfile=", "--loglevel=INFO")
    words = ("--without-mingle", "--without-gossip", "--loglevel=INFO")
    workers = {name: start("worker", name, lease, "-n", f"{name}@%h", *words) for name in names}
    wait_for(lambda: Worker.objects.filter(status="online").count() == len(names), "the workers are there")
    return workers


@pytest.fixture
def submit(bucket: None) -> Callable[..., Any]:
    Queue.objects.get_or_create(name="default")
    secret = new_secret()
    store_token(owner=make_user(), name="test", secret=secret)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")

    def submit(name: str, rounds: int) -> str:
        body = {"name": name, "runtime": "bash", "script": JOURNAL, "args": [str(rounds)], "timeout_seconds": 300}
        answer = client.post("/api/v1/jobs", body, format="json")
        assert answer.status_code == 201, answer.content
        return str(answer.json()["id"])

    return submit


def execution_of(job: str) -> Execution:
    return Execution.objects.select_related("worker").get(job_id=job)


def wait_until_it_writes(job: str) -> Execution:
    def writes() -> Execution | None:
        found = Execution.objects.select_related("worker").filter(job_id=job, state="running").first()
        return found if found and LogChunk.objects.filter(execution_id=found.id).exists() else None

    found = wait_for(writes, "its program runs")
    assert found is not None
    return found


def wait_for_success(job: str) -> Execution:
    wait_for(lambda: execution_of(job).state == "succeeded", "it succeeded", seconds=90)
    return execution_of(job)


def journal(execution: Execution) -> dict[int, list[float]]:
    chunks = LogChunk.objects.filter(execution_id=execution.id).order_by("attempt", "sequence")
    lines = b"".join(bytes(data) for data in chunks.values_list("data", flat=True)).split(b"\n")
    written: dict[int, list[float]] = {}
    for attempt, moment in (line.split() for line in lines if line.count(b" ") == 1):
        written.setdefault(int(attempt), []).append(float(moment))
    return written


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def open_sandbox(worker: Started) -> list[int]:
    """Descriptors of all that runs inside the worker's sandboxes."""
    ours = os.readlink("/proc/self/ns/pid")
    inside = [each.pid for each in worker.family() if os.readlink(f"/proc/{each.pid}/ns/pid") != ours]
    assert inside
    return [os.pidfd_open(pid) for pid in inside]


def wait_until_over(descriptors: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], "it lives on"
        os.close(descriptor)


def test_a_frozen_worker_loses_its_run_in_time_and_recovers(start: Start, submit: Callable[..., Any]) -> None:
    lease = 9.0
    workers = start_beat_and_workers(start, lease, "one", "two")
    job = submit("frozen", FOREVER)
    execution = wait_until_it_writes(job)
    first = execution.worker
    assert first is not None
    frozen = workers[first.name]
    sandbox = open_sandbox(frozen)
    stopped: list[psutil.Process] = []
    try:
        for _ in range(2):  # once more for what was started meanwhile
            for process in frozen.family():
                process.suspend()
                stopped.append(process)
        wait_until_over(sandbox, 2 * lease)
        dead_at = database_now()
        first.refresh_from_db()
        assert dead_at < first.lease_until, "before anybody else may start it"

        again = wait_for_success(job)
        assert again.worker is not None
        assert again.worker.name != frozen.name
        written = journal(again)
        assert written[1][-1] < written[2][0], "no two attempts at once"
        said = LogChunk.objects.filter(execution_id=execution.id).count()
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    wait_for(
        lambda: Worker.objects.filter(name=frozen.name, incarnation=2, status="online").exists(),
        "it registered anew",
    )
    wait_for(lambda: "was given away while it ran" in frozen.log, "its report was refused")
    final = execution_of(job)
    assert (final.state, final.attempt, final.times_lost, final.tries_used) == ("succeeded", 2, 1, 1)
    ends = Attempt.objects.filter(execution_id=final.id).order_by("number").values_list("reason", "exit_code")
    assert list(ends) == [("lost", None), ("exit", 0)], "one finish"
    assert LogChunk.objects.filter(execution_id=final.id).count() == said, "its log lines were refused, too"

    # Alone it works again; and killed, it leaves nothing behind, its guardian neither.
    end(next(worker for worker in workers.values() if worker is not frozen).process)
    assert wait_until_it_writes(submit("thawed", FOREVER)).worker_id == first.id
    family = psutil.Process(frozen.process.pid).children(recursive=True)
    assert any("guardian_process" in word for each in family for word in each.cmdline())
    descriptors = [os.pidfd_open(each.pid) for each in family]
    frozen.process.kill()
    wait_until_over(descriptors, 20)


def test_a_short_outage_of_postgres_costs_nothing_and_a_long_one_no_try(
    engines: Engines, start: Start, submit: Callable[..., Any]
) -> None:
    lease = 15.0
    (worker,) = start_beat_and_workers(start, lease, "only").values()
    brief = wait_until_it_writes(str(submit("brief", 100)))
    endless = submit("endless", FOREVER)
    wait_until_it_writes(endless)
    assert execution_of(str(brief.job_id)).state == "running"
    connection.close()

    server = psutil.Process(engines.postgres.pid)
    frozen = [server, *server.children(recursive=True)]
    for process in frozen:
        process.suspend()
    try:
        wait_for(lambda: "The lease was not renewed" in worker.log, "a renewal was given up", seconds=15)
    finally:
        for process in frozen:
            process.resume()
    done = wait_for_success(str(brief.job_id))
    assert (done.attempt, done.times_lost, done.tries_used) == (1, 0, 1)
    assert execution_of(endless).attempt == 1
    assert Worker.objects.get().incarnation == 1

    sandbox = open_sandbox(worker)
    lease_until = Worker.objects.get().lease_until.timestamp()
    connection.close()
    engines.postgres.stop()
    try:
        wait_until_over(sandbox, lease)
        # This machine's clock is the database's.
        wait_for(lambda: time.time() > lease_until + 1, "the lease has ended, too", seconds=lease + 5)
    finally:
        engines.postgres.start()
    again = wait_for_success(endless)
    assert (again.attempt, again.times_lost, again.tries_used) == (2, 0, 1)
    ends = Attempt.objects.filter(execution_id=again.id).order_by("number").values_list("reason", flat=True)
    assert list(ends) == ["released", "exit"]
    written = journal(again)
    assert written[1][-1] < written[2][0]
    assert not ExecutionEvent.objects.filter(name="execution.lost").exists(), "nobody was taken for lost"
