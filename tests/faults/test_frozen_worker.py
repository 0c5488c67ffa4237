"""Real beats and workers with a short lease: frozen workers, and short and long outages of Postgres.

The jobs log a journal: every line contains its attempt and time.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest
from django.db import connection
from rest_framework.test import APIClient

from jobs.access.tokens import generate_secret, store_token
from jobs.models import Attempt, Execution, ExecutionEvent, LogChunk, Queue, Worker
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.factories import make_user
from tests.support.freezing import suspended
from tests.support.processes import end
from tests.support.stack import ROOT
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# The first attempt runs until the given time or for ever; later ones write one line.
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
        """Return the worker, its launcher and everything in its sandboxes, without the guardian."""
        worker = psutil.Process(self.process.pid)
        found = [worker]
        for child in worker.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if not any("guardian_process" in word for word in child.cmdline()):
                    found.append(child)
        return found

    def helpers(self) -> list[psutil.Process]:
        """Return everything outside sandboxes: worker, guardian, launcher, slots, monitors."""
        worker, ours = psutil.Process(self.process.pid), os.readlink("/proc/self/ns/pid")
        found = []
        for process in (worker, *worker.children(recursive=True)):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{process.pid}/ns/pid") == ours:
                    found.append(process)
        return found


FREEZERS = {"freezer.state": ("FROZEN", "THAWED"), "cgroup.freeze": ("1", "0")}
CAN_FREEZE = os.access("/sys/fs/cgroup/freezer", os.W_OK) or os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK)


@contextlib.contextmanager
def frozen_by_cgroup(processes: Collection[psutil.Process]) -> Iterator[None]:
    """Freeze them in a cgroup of their own, as pausing a service without its sandboxes does."""
    root = next(path for path in map(Path, ("/sys/fs/cgroup/freezer", "/sys/fs/cgroup")) if path.exists())
    group = root / f"punctual-test-{os.getpid()}"
    group.mkdir()
    switch, (on, off) = next((group / name, words) for name, words in FREEZERS.items() if (group / name).exists())
    try:
        for process in processes:
            (group / "cgroup.procs").write_text(str(process.pid))
        switch.write_text(on)
        yield
    finally:
        switch.write_text(off)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                (root / "cgroup.procs").write_text(str(process.pid))
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "nothing is in the test's cgroup")
        group.rmdir()


TOGETHER = {
    "worker and guardian": suspended,
    **({"worker and guardian, by cgroup": frozen_by_cgroup} if CAN_FREEZE else {}),
    "every process outside the sandbox": suspended,
}


@pytest.fixture
def start(engines: Engines, bucket: None, tmp_path: Path) -> Iterator[Start]:
    """Start Celery's processes on the test's database, each with its own log."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    with ExitStack() as stack:

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
            stack.callback(end, process)
            return Started(name, process, log)

        yield start


def start_beat_and_workers(start: Start, lease: float, *names: str) -> dict[str, Started]:
    start("beat", "beat", lease, "--pidfile=", "--loglevel=INFO")
    words = ("--without-mingle", "--without-gossip", "--loglevel=INFO")
    workers = {name: start("worker", name, lease, "-n", f"{name}@%h", *words) for name in names}
    wait_for(lambda: Worker.objects.filter(status="online").count() == len(names), "the workers are there")
    return workers


@pytest.fixture
def submit(bucket: None) -> Callable[..., Any]:
    Queue.objects.get_or_create(name="default")
    secret = generate_secret()
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
    """Open a pidfd for every process inside the worker's sandboxes."""
    ours = os.readlink("/proc/self/ns/pid")
    inside = []
    for each in worker.family():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/{each.pid}/ns/pid") != ours:
                inside.append(each)
    descriptors = open_processes(inside)
    assert descriptors
    return descriptors


def open_processes(processes: Iterable[psutil.Process]) -> list[int]:
    """Open a pidfd for each process that has not ended yet."""
    descriptors = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(process.pid))
    return descriptors


def wait_until_over(descriptors: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], "it is still alive"
        os.close(descriptor)


def test_frozen_worker_loses_its_run_in_time_and_recovers(start: Start, submit: Callable[..., Any]) -> None:
    lease = 9.0
    workers = start_beat_and_workers(start, lease, "one", "two")
    job = submit("frozen", FOREVER)
    execution = wait_until_it_writes(job)
    first = execution.worker
    assert first is not None
    frozen = workers[first.name]
    sandbox = open_sandbox(frozen)
    # List the processes twice, to include what they started while being stopped.
    with suspended(process for _ in range(2) for process in frozen.family()):
        wait_until_over(sandbox, 2 * lease)
        dead_at = database_now()
        first.refresh_from_db()
        assert dead_at < first.lease_until, "before any other worker may start it"

        again = wait_for_success(job)
        assert again.worker is not None
        assert again.worker.name != frozen.name
        written = journal(again)
        assert written[1][-1] < written[2][0], "no two attempts at once"
        line_count = LogChunk.objects.filter(execution_id=execution.id).count()

    wait_for(
        lambda: Worker.objects.filter(name=frozen.name, incarnation=2, status="online").exists(),
        "it registers again",
    )
    wait_for(lambda: "was reassigned while it ran" in frozen.log, "its report was refused")
    final = execution_of(job)
    assert (final.state, final.attempt, final.times_lost, final.tries_used) == ("succeeded", 2, 1, 1)
    outcomes = Attempt.objects.filter(execution_id=final.id).order_by("number").values_list("reason", "exit_code")
    assert list(outcomes) == [("lost", None), ("exit", 0)], "only one outcome counts"
    assert LogChunk.objects.filter(execution_id=final.id).count() == line_count, "its log lines were refused as well"

    # Resumed it works again; killed, it leaves no process behind, not even its guardian.
    end(next(worker for worker in workers.values() if worker is not frozen).process)
    assert wait_until_it_writes(submit("thawed", FOREVER)).worker_id == first.id
    assert any("guardian_process" in " ".join(each.cmdline()) for each in frozen.helpers())
    descriptors = open_processes(psutil.Process(frozen.process.pid).children(recursive=True))
    frozen.process.kill()
    wait_until_over(descriptors, 20)


@pytest.mark.parametrize("what", TOGETHER)
def test_program_ends_with_its_lease_while_worker_and_guardian_are_frozen(
    start: Start, submit: Callable[..., Any], what: str
) -> None:
    lease = 9.0
    workers = start_beat_and_workers(start, lease, "one", "two")
    job = submit("frozen together", FOREVER)
    first = wait_until_it_writes(job).worker
    assert first is not None
    frozen = workers[first.name]
    sandbox = open_sandbox(frozen)
    helpers = frozen.helpers()
    assert sum("guardian_process" in " ".join(each.cmdline()) for each in helpers) == 1
    if what.startswith("worker and guardian"):
        frozen_parts = ("celery", "guardian_process")
        helpers = [each for each in helpers if any(part in " ".join(each.cmdline()) for part in frozen_parts)]
        assert len(helpers) == 2
    with TOGETHER[what](helpers):
        wait_until_over(sandbox, 2 * lease)
        dead_at = database_now()
        first.refresh_from_db()
        assert dead_at < first.lease_until, "before any other worker may start it"
        again = wait_for_success(job)
        assert again.worker_id != first.id
        written = journal(again)
        assert written[1][-1] < written[2][0], "no two attempts at once"
    wait_for(lambda: Worker.objects.filter(id=first.id, incarnation=2, status="online").exists(), "it registers again")
    end(next(worker for worker in workers.values() if worker is not frozen).process)
    assert wait_until_it_writes(submit("thawed", FOREVER)).worker_id == first.id


def test_short_outage_of_postgres_costs_nothing_and_long_one_no_try(
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
    with suspended([server, *server.children(recursive=True)]):
        wait_for(lambda: "Postgres is away" in worker.log, "a renewal was given up", seconds=15)
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
    outcomes = Attempt.objects.filter(execution_id=again.id).order_by("number").values_list("reason", flat=True)
    assert list(outcomes) == ["released", "exit"]
    written = journal(again)
    assert written[1][-1] < written[2][0]
    assert not ExecutionEvent.objects.filter(name="execution.lost").exists(), "no worker was marked lost"
