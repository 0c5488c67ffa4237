"""Promote a real standby that lacks a claim which the primary had confirmed: nothing runs twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from scheduler_project.localstack.engines.postgres import DATABASE, Postgres
from scheduler_project.localstack.engines.standalone import EngineProcess
from scheduler_project.localstack.ports import LOOPBACK, iter_free_ports
from tests.support.stack import ROOT
from tests.support.waiting import wait_for

LEASE = 3.0
SUPERUSER_PASSWORD = "super"

DJANGO = """
import json, time
import django
django.setup()
from django.core.management import call_command
from jobs.models import Execution, Worker
from jobs.domain.worker_protocol import Registration
from jobs.execution import transitions
from jobs.fleet.leases import renew_lease
from jobs.dispatch.placement import place_ready_executions
from jobs.fleet.reaping import reap_lost_workers
from jobs.domain.errors import WorkerLeaseLost
from tests.support.factories import hold_of, make_execution, make_worker, stamp_reaping
from tests.support.waiting import wait_for
"""
BEFORE = """
call_command("migrate", verbosity=0)
stamp_reaping()
reap_lost_workers()
make_worker(name="first")
print(json.dumps(str(make_execution().id)))
"""
CLAIM = """
make_worker(name="first")
assert place_ready_executions().placed == 1
hold = hold_of(Execution.objects.get())
transitions.claim(hold)
print(json.dumps([hold.attempt, Execution.objects.get().state]))
"""
AFTER = """
execution = Execution.objects.get()
known_as = [execution.state, execution.attempt]
make_worker(name="second")
placed_at_first = place_ready_executions().placed
began = time.monotonic()
first = Worker.objects.get(name="first")
try:
    orders = renew_lease(Registration(first.id, first.incarnation), [(execution.id, 1)])
    stop_ordered = [str(order.execution_id) for order in orders] == [str(execution.id)]
except WorkerLeaseLost:
    stop_ordered = True

def pass_of_beat():
    make_worker(name="second")
    reap_lost_workers()
    return place_ready_executions().placed

placed = wait_for(pass_of_beat, "it is placed", every=0.1)
print(json.dumps([known_as, placed_at_first, stop_ordered, placed, time.monotonic() - began]))
"""


def run(postgres: Postgres, script: str) -> Any:
    environment = {
        **os.environ,
        "DATABASE_URL": postgres.url,
        "DJANGO_SETTINGS_MODULE": "scheduler_project.settings",
        "PUNCTUAL_LEASE_SECONDS": str(LEASE),
        "PUNCTUAL_RENEW_SECONDS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", DJANGO + script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def as_superuser(postgres: Postgres, *statements: str) -> list[Any]:
    with psycopg.connect(
        host=LOOPBACK,
        port=postgres.port,
        user="postgres",
        password=SUPERUSER_PASSWORD,
        dbname=DATABASE,
        autocommit=True,
    ) as connection:
        return [connection.execute(statement) for statement in statements]


def make_standby(primary: Postgres, directory: Path, port: int) -> Postgres:
    """Start an asynchronous replica of the primary."""
    standby = Postgres(directory, port, primary.password, SUPERUSER_PASSWORD, sync_to_disk=False)
    directory.mkdir(mode=0o700)
    source = f"host={LOOPBACK} port={primary.port} user=postgres password={SUPERUSER_PASSWORD}"
    program = str(standby._program("pg_basebackup"))
    # As the same system user as the primary.
    standby._run([program, "-D", str(standby.data), "-d", source, "-R", "--checkpoint=fast"], what="copy the primary")
    return standby


@pytest.mark.usefixtures("engines")
def test_execution_with_a_lost_claim_is_placed_again_only_after_one_lease(tmp_path: Path) -> None:
    ports = iter_free_ports()
    with ExitStack() as stack:

        def start(postgres: Postgres) -> EngineProcess:
            process = EngineProcess(postgres, postgres.directory)
            stack.callback(process.kill)
            process.start()
            return process

        (tmp_path / "primary").mkdir()
        primary = Postgres(tmp_path / "primary", next(ports), "secret", SUPERUSER_PASSWORD, sync_to_disk=False)
        primary_process = start(primary)
        run(primary, BEFORE)
        standby = make_standby(primary, tmp_path / "standby", next(ports))
        start(standby)
        wait_for(
            lambda: as_superuser(standby, "SELECT count(*) FROM jobs_execution")[0].fetchone() == (1,),
            "the standby has what the primary had",
        )
        # The network between them fails before the claim.
        as_superuser(standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        wait_for(
            lambda: as_superuser(primary, "SELECT count(*) FROM pg_stat_replication")[0].fetchone() == (0,),
            "nothing is replicated any more",
        )
        assert run(primary, CLAIM) == [1, "claimed"]
        primary_process.kill()
        as_superuser(standby, "SELECT pg_promote()")

        known_as, placed_at_first, stop_ordered, placed, waited = run(standby, AFTER)
        assert known_as == ["ready", 0], "the claim is unknown to the new primary"
        assert placed_at_first == 0, "not even before a beat has noticed"
        assert stop_ordered, "its worker gets the order"
        assert (placed, waited >= LEASE) == (1, True)
