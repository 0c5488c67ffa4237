"""Tools that freeze, kill and observe parts of a stack from outside, without hooks in the product."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import httpx
import psutil
import psycopg

from tests.deaths.aftermath import check_aftermath, check_ended_once
from tests.deaths.journal import Witness, attempts_of, journaled, moment
from tests.support.freezing import suspended
from tests.support.stack import ROOT, TERMINAL, Stack
from tests.support.waiting import wait_for

# Settings of the stack whose workers are killed.
LEASE_SECONDS = 6.0


@dataclass
class Laboratory:
    stack: Stack
    environment: dict[str, str]  # of the supervised worker
    witness: Witness
    dead: list[int] = field(default_factory=list)
    recovered: list[float] = field(default_factory=list)  # seconds from each death to the claim of the next attempt

    @classmethod
    @contextmanager
    def opened(cls, stack: Stack) -> Iterator[Laboratory]:
        with Witness().watching() as witness:
            yield cls(stack, stack.process("worker").environ(), witness)

    @contextmanager
    def database(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.environment["DATABASE_URL"], autocommit=True) as connection:
            yield connection

    def submit(self, name: str, seconds: float, **body: Any) -> dict[str, Any]:
        return self.stack.submit(**journaled(f"{name}-{uuid4().hex[:8]}", seconds, **body))

    def submit_for_later(self, name: str, seconds: float, **body: Any) -> dict[str, Any]:
        """Submit a job whose program is stored now and which runs on request."""
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        return self.submit(name, seconds, schedules=[{"at": tomorrow.isoformat()}], **body)

    def execute(self, job: dict[str, Any]) -> None:
        self.stack.api.post(f"/jobs/{job['id']}/execute", json={}).raise_for_status()

    def execution(self, job: dict[str, Any], status: str) -> dict[str, Any]:
        """Return the job's only execution once it is in this state."""

        def found() -> list[dict[str, Any]]:
            return [e for e in self.stack.executions(job) if e["status"] == status]

        return wait_for(found, f"{job['name']} is {status}", seconds=30, every=0.05)[0]

    def wait_until_placed(self, job: dict[str, Any]) -> None:
        """Wait until the execution is placed on a worker, or further."""

        def placed() -> bool:
            (execution,) = self.stack.executions(job)
            return str(execution["status"]) != "ready"

        wait_for(placed, f"{job['name']} is placed", seconds=30, every=0.05)

    def wait_for_end(self, job: dict[str, Any]) -> dict[str, Any]:
        """Wait like the stack, even while the API is away."""

        def ended() -> dict[str, Any] | None:
            try:
                (execution,) = self.stack.executions(job)
            except httpx.HTTPError:
                return None
            return execution if execution["status"] in TERMINAL else None

        execution = wait_for(ended, f"{job['name']} ended", seconds=60, every=0.1)
        assert execution is not None
        return execution

    def wait_for_line(self, execution: dict[str, Any], word: str) -> None:
        def written() -> bool:
            return any(line.startswith(word) for line in self.stack.log(execution).splitlines())

        wait_for(written, f"its journal to contain {word}", seconds=30, every=0.05)

    @staticmethod
    def wait_until_blocked(database: psycopg.Connection[Any], by: psycopg.Connection[Any]) -> None:
        """Wait until finishing an attempt waits for a lock of this connection."""
        blocked = """
            SELECT 1 FROM pg_stat_activity
             WHERE %s = ANY(pg_blocking_pids(pid)) AND query LIKE '%%lock_held_attempt%%'
        """
        pid = by.info.backend_pid
        wait_for(lambda: database.execute(blocked, (pid,)).fetchone(), "its outcome to wait for the lock", seconds=30)

    def kill(self, process: psutil.Process) -> datetime:
        """Kill the process alone with SIGKILL: its children must exit without help."""
        process.kill()
        self.dead.append(process.pid)
        return datetime.now(UTC)

    def check_end(self, job: dict[str, Any], *, attempts: int, killed: datetime, within: float) -> dict[str, Any]:
        """Assert success in this many attempts, the last of which began in time."""
        execution = self.wait_for_end(job)
        check_ended_once(self.stack, execution)
        made = attempts_of(self.stack, execution)
        assert len(made) == attempts
        seconds = (moment(made[-1]["claimed_at"]) - killed).total_seconds()
        assert seconds <= within
        self.recovered.append(seconds)
        return execution

    def check_aftermath(self) -> None:
        with self.database() as database:
            check_aftermath(self.stack, database, dead=self.dead)
            ours = {str(row[0]) for row in database.execute("SELECT id FROM jobs_execution")}
        assert self.witness.samples
        assert not [overlap for overlap in self.witness.overlaps if overlap[0] in ours]


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    with suspended([process, *process.children(recursive=True)]):
        yield


@dataclass
class OwnWorker:
    """A worker without a supervisor: its death stands for that of its machine."""

    laboratory: Laboratory
    name: str
    pool: str
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        return self.laboratory.stack.var / f"worker-{self.name}"

    @property
    def running(self) -> psutil.Process:
        assert self.process is not None
        return psutil.Process(self.process.pid)

    def start(self) -> OwnWorker:
        """Start the worker unless it runs already."""
        if self.process is not None and self.process.poll() is None:
            return self
        settings = {
            "PUNCTUAL_WORKER_NAME": self.name,
            "PUNCTUAL_WORKER_POOL": self.pool,
            "PUNCTUAL_WORKER_STATE_DIR": str(self.state),
            **self.settings,
        }
        with (self.laboratory.stack.var / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "scheduler_project", "worker", "-n", f"{self.name}@%h"],
                cwd=ROOT,
                env={**self.laboratory.environment, **settings},
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: self.row().get("status") == "online", f"{self.name} is online", seconds=30, every=0.1)
        return self

    def row(self) -> dict[str, Any]:
        found = self.laboratory.stack.api.get("/workers", params={"limit": 100}).raise_for_status().json()["results"]
        return next((row for row in found if row["name"] == self.name), {})

    def kill(self) -> datetime:
        killed = self.laboratory.kill(self.running)
        assert self.process is not None
        self.process.wait(10)
        return killed

    def terminate(self) -> subprocess.Popen[bytes]:
        assert self.process is not None
        self.process.terminate()
        return self.process

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


def make_queue(
    database: psycopg.Connection[Any], name: str, *, pool: str = "default", limit: int | None = None
) -> None:
    database.execute(
        "INSERT INTO jobs_queue (id, name, pool, priority, max_concurrency, aging_seconds, paused, created_at)"
        " VALUES (gen_random_uuid(), %s, %s, 0, %s, 60, false, now())",
        (name, pool, limit),
    )


def object_exists(laboratory: Laboratory, prefix: str) -> bool:
    """Return whether the object store has an object with this prefix."""
    environment = laboratory.environment
    client = boto3.client(
        "s3",
        endpoint_url=environment["S3_ENDPOINT_URL"],
        region_name=environment.get("S3_REGION", "us-east-1"),
        aws_access_key_id=environment["S3_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["S3_SECRET_ACCESS_KEY"],
    )
    return bool(client.list_objects_v2(Bucket=environment["S3_BUCKET"], Prefix=prefix).get("KeyCount"))
