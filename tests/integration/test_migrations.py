"""The migrations are complete, can be undone, and build the database from nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations import RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from jobs.management.commands import bootstrap
from jobs.models import StoredAnswer, WebhookDelivery
from jobs.models.webhook import EVENTS
from jobs.services import transitions
from jobs.services.webhooks import create_webhook
from scheduler_project.embedded.engines import Engines
from scheduler_project.postgresql import base
from tests.factories import make_execution, make_job, make_user
from tests.own_connection import own_connection

ROOT = Path(__file__).resolve().parents[2]
THERE_AND_BACK = """
from contextlib import nullcontext
import django
django.setup()
from django.core.management import call_command
from django.db import DataError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
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

# Who locks two tables at once may wait for the second while everybody waits for the first.
LOCKED = '''SELECT DISTINCT relname FROM pg_locks JOIN pg_class ON pg_class.oid = relation
             WHERE pid = pg_backend_pid() AND relkind IN ('r', 'p')
               AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')'''
# To build an index in a transaction keeps writers out while the whole table is read.
LARGE = [f"jobs_{name}" for name in ("artifact", "attempt", "execution", "job", "jobversion", "output", "schedule")]
INDEXES = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid::regclass::text = ANY(%s)"

def indexes_of_large():
    with connection.cursor() as cursor:
        cursor.execute(INDEXES, [LARGE])
        return {name for (name,) in cursor.fetchall()}

loader = MigrationLoader(connection)
own = sorted(name for label, name in loader.disk_migrations if label == "jobs")
MigrationExecutor(connection).migrate([("jobs", name) for name in own if name < "0032"])
for name in (name for name in own if name > "0032"):
    there = tables() | {"auth_user"}
    at_once, indexed = loader.disk_migrations["jobs", name].atomic, indexes_of_large()
    with transaction.atomic() if at_once else nullcontext():
        MigrationExecutor(connection).migrate([("jobs", name)])
        with connection.cursor() as cursor:
            cursor.execute(LOCKED)
            locked = {relation for (relation,) in cursor.fetchall()} & there
    assert len(locked) <= 1, (name, locked)
    assert not at_once or indexes_of_large() <= indexed, (name, indexes_of_large() - indexed)
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


def test_what_is_no_transaction_bounds_its_locks_itself() -> None:
    statements = [
        text
        for (label, _), migration in MigrationLoader(None).disk_migrations.items()
        if label == "jobs" and not migration.atomic
        for operation in migration.operations
        if isinstance(operation, SeparateDatabaseAndState)
        for step in operation.database_operations
        if isinstance(step, RunSQL)
        for text in (step.sql, step.reverse_sql)
        if "ALTER TABLE" in str(text)
    ]
    assert len(statements) > 10
    assert [text for text in statements if not str(text).strip().startswith("SET LOCAL lock_timeout = '2s';")] == []


@pytest.mark.django_db(transaction=True)
def test_a_migration_that_cannot_have_its_lock_soon_gives_up_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(bootstrap, "RETRY_LOCK_SECONDS", 0.01)
    tries: list[bool] = []
    with own_connection() as other:
        other.execute("BEGIN; SELECT FROM jobs_queue LIMIT 1")

        def migrate(*_: object, **__: object) -> None:
            tries.append(True)
            if len(tries) == 3:
                other.execute("ROLLBACK")
            with connection.schema_editor() as editor:
                editor.execute("LOCK TABLE jobs_queue IN ACCESS EXCLUSIVE MODE")

        monkeypatch.setattr(bootstrap, "call_command", migrate)
        told = StringIO()
        bootstrap.Command(stdout=told)._apply()
    assert len(tries) == 3
    assert told.getvalue().count("trying again") == 2


@pytest.mark.django_db
def test_an_older_process_may_delete_what_it_does_not_know_to_be_referred_to() -> None:
    """It deletes users, jobs and executions without what came with a later release."""
    user = make_user()
    execution = make_execution(job=make_job(owner=user))
    webhook, _ = create_webhook(owner=user, name="hook", url="https://example.com/", events=EVENTS)
    transitions.cancel([execution.id], by="me")
    assert WebhookDelivery.objects.filter(execution=execution, webhook=webhook).exists()
    idle = make_user()
    StoredAnswer.objects.create(owner=idle, key="k", route="r", status=201, body="", expires_at=datetime.now(UTC))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobs_execution WHERE id = %s", [execution.id])
        cursor.execute("DELETE FROM auth_user WHERE id = %s", [idle.pk])
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert not WebhookDelivery.objects.exists()
    assert not StoredAnswer.objects.exists()


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
