"""The migrations are complete, can be undone, and build the database from nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from scheduler_project.embedded.engines import Engines

ROOT = Path(__file__).resolve().parents[2]
THERE_AND_BACK = """
import django
django.setup()
from django.core.management import call_command
from django.db import DataError, connection
from django.db.migrations.loader import MigrationLoader
from jobs.models import Queue
from django_celery_beat.models import PeriodicTask

def tables():
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relname LIKE 'jobs@_%' ESCAPE '@' AND relkind IN ('r', 'p')")
        return {name for (name,) in cursor.fetchall()}

call_command("migrate", verbosity=0)
made = tables()
assert {"jobs_execution", "jobs_logchunk", "jobs_logchunk_default"} <= made, made
call_command("migrate", "jobs", "zero", verbosity=0)
assert tables() == set(), tables()
call_command("migrate", verbosity=0)
assert tables() == made
assert list(Queue.objects.values_list("name", flat=True)) == ["default"]

def indexes():
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexrelid::regclass::text, indexrelid, indisvalid FROM pg_index")
        return {name: (oid, valid) for name, oid, valid in cursor.fetchall()}

# As an interrupted build leaves them: one of them not there, one not valid.
with connection.cursor() as cursor:
    cursor.execute("DROP INDEX job_by_name")
    cursor.execute("DROP INDEX job_live")
    try:
        cursor.execute("CREATE INDEX CONCURRENTLY job_live ON jobs_queue ((1 / (length(name) - length(name))))")
    except DataError:
        pass
before = indexes()
assert before["job_live"][1] is False
loader = MigrationLoader(connection)
with connection.schema_editor(atomic=False) as editor:
    state = loader.project_state(("jobs", "0032_idempotency"))
    loader.get_migration("jobs", "0033_listing").apply(state, editor)
after = indexes()
assert after["job_by_name"][1] and after["job_live"][1]
assert before["job_search"] == after["job_search"]
print(sorted(PeriodicTask.objects.values_list("task", flat=True)))
"""

SEEDED = [
    "celery.backend_cleanup",
    "jobs.advance_backfills",
    "jobs.archive_logs",
    "jobs.create_partitions",
    "jobs.index_logs",
    "jobs.prune_history",
    "jobs.prune_logs",
    "jobs.refill_due_window",
    "jobs.sweep_orphans",
]


@pytest.mark.django_db
def test_no_change_of_the_models_lacks_its_migration() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def own_operations() -> list[tuple[str, Operation]]:
    loader = MigrationLoader(None)
    return [
        (f"{name} {operation.describe()}", operation)
        for (label, name), migration in loader.disk_migrations.items()
        if label == "jobs"
        for operation in migration.operations
    ]


def test_every_operation_can_be_undone() -> None:
    operations = own_operations()
    assert len(operations) > 20
    assert [name for name, operation in operations if not operation.reversible] == []


@pytest.fixture
def empty_database(engines: Engines) -> Iterator[str]:
    parts = urlsplit(engines.environment()["DATABASE_URL"])
    url, name = urlunsplit(parts), "migrated_from_zero"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield urlunsplit(parts._replace(path=f"/{name}"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_they_build_the_database_from_nothing_take_it_down_and_build_it_again(empty_database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THERE_AND_BACK],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": empty_database, "DJANGO_SETTINGS_MODULE": "scheduler_project.settings"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(SEEDED), "the seeds came once"
