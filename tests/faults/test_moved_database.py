"""Web, beat and worker while Postgres is demoted or frozen: they reconnect to where it has moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from jobs.models import Execution
from scheduler_project.localstack.engines.postgres import ROLE, Postgres
from scheduler_project.localstack.engines.standalone import Engines
from tests.support.postgres_proxy import PostgresProxy
from tests.support.processes import PROCESSES, Processes, started
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# A statement timeout of ten seconds with its margin, a few attempts to connect, and a run.
RESUMES_SECONDS = 30.0

Move = Callable[[], None]


def as_superuser(engines: Engines, *statements: str) -> None:
    postgres = engines.postgres.engine
    assert isinstance(postgres, Postgres)
    with psycopg.connect(
        host="127.0.0.1",
        port=postgres.port,
        user="postgres",
        password=postgres.superuser_password,
        dbname="postgres",
        autocommit=True,
        options="-c default_transaction_read_only=off",
    ) as other:
        for statement in statements:
            other.execute(statement)


@contextmanager
def demoted(engines: Engines, proxy: PostgresProxy) -> Iterator[Move]:
    """Route all connections to a read-only server; after the move, new ones reach a writable one."""
    try:
        as_superuser(engines, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        yield lambda: as_superuser(engines, f"ALTER ROLE {ROLE} SET default_transaction_read_only = off")
    finally:
        as_superuser(
            engines,
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
            f"ALTER ROLE {ROLE} RESET default_transaction_read_only",
        )


@contextmanager
def frozen(engines: Engines, proxy: PostgresProxy) -> Iterator[Move]:
    proxy.freeze()
    yield proxy.lead_on


FAULTS = {"demoted": demoted, "frozen": frozen}


def succeeded_since(moment: datetime) -> bool:
    return Execution.objects.filter(state="succeeded", scheduled_for__gt=moment, trigger="schedule").exists()


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


@pytest.mark.parametrize("fault", FAULTS)
def test_firing_running_and_submitting_resume_within_seconds(
    engines: Engines, bucket: None, tmp_path: Path, fault: str
) -> None:
    with PostgresProxy() as proxy, started(proxy, tmp_path) as processes:
        assert processes.submit("every second", schedules=[{"every_seconds": 1}])
        wait_for(lambda: succeeded_since(datetime.fromtimestamp(0).astimezone()), "it runs")
        with FAULTS[fault](engines, proxy) as move:
            wait_for(lambda: not processes.submit("refused"), "nothing is taken any more")
            wait_for(lambda: fails(processes), "beat has noticed", seconds=RESUMES_SECONDS)
            move()
            moved, began = database_now(), time.monotonic()
            wait_for(lambda: processes.submit("taken"), "web takes jobs again", seconds=RESUMES_SECONDS)
            taken = time.monotonic() - began
            wait_for(lambda: succeeded_since(moved), "jobs fire and run again", seconds=RESUMES_SECONDS)
            print(f"{fault}: taken again after {taken:.1f} s, run again after {time.monotonic() - began:.1f} s")


def fails(processes: Processes) -> bool:
    return "Postgres is away" in processes.log("beat")


# Lines that a process logs meanwhile for other reasons, such as runs that it could not claim.
AWAY_SECONDS, OTHER_LINES = 10.0, 10


def test_outage_logs_one_line_at_its_start_and_one_at_its_end(engines: Engines, bucket: None, tmp_path: Path) -> None:
    with PostgresProxy() as proxy, started(proxy, tmp_path) as processes:
        assert processes.submit("every second", schedules=[{"every_seconds": 1}])
        wait_for(lambda: succeeded_since(datetime.fromtimestamp(0).astimezone()), "it runs")
        before = {name: processes.log(name).count("\n") for name in PROCESSES}
        proxy.go_away()
        began = time.monotonic()
        while time.monotonic() - began < AWAY_SECONDS:
            assert not processes.submit("refused")
        proxy.lead_on()
        moved = database_now()
        wait_for(lambda: succeeded_since(moved), "jobs fire and run again", seconds=RESUMES_SECONDS)
        assert processes.submit("taken")
        for name in PROCESSES:
            wait_for(lambda name=name: "Postgres is back" in processes.log(name), f"{name} logs the recovery")  # type: ignore[misc]
            during = processes.log(name).splitlines()[before[name] :]
            assert sum("Postgres is away" in line for line in during) == 1, during
            assert not any("Traceback" in line or "Dropped an invalid message" in line for line in during), during
            noise = [line for line in during if " WARNING " in line or " ERROR " in line]
            assert len(noise) <= OTHER_LINES, noise
