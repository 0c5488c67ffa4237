"""The migrations are complete, can be undone, and build the database from nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations import RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from jobs.execution import transitions
from jobs.management.commands import bootstrap
from jobs.models import StoredAnswer, WebhookDelivery
from jobs.models.webhook import WEBHOOK_EVENTS
from jobs.notifications.webhooks.subscriptions import create_webhook
from scheduler_project.db_backend import base
from tests.support.empty_database import EmptyDatabase
from tests.support.factories import make_execution, make_job, make_user
from tests.support.own_connection import own_connection

ROOT = Path(__file__).resolve().parents[3]
THERE_AND_BACK = """
from contextlib import nullcontext
import django
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
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

# Whoever locks two tables at once may wait for the second while everybody waits for the first, and building an index in
# a transaction keeps writers out while the whole table is read. The first migrations make the tables, which are empty.
LOCKED = '''SELECT DISTINCT relname FROM pg_locks JOIN pg_class ON pg_class.oid = relation
             WHERE pid = pg_backend_pid() AND relkind IN ('r', 'p')
               AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')'''
LARGE = [f"jobs_{name}" for name in ("artifact", "attempt", "execution", "job", "jobversion", "output", "schedule")]
INDEXES = "SELECT indexrelid::int FROM pg_index WHERE indrelid::regclass::text = ANY(%s)"

def indexes_of_large():
    with connection.cursor() as cursor:
        cursor.execute(INDEXES, [LARGE])
        return {name for (name,) in cursor.fetchall()}

loader = MigrationLoader(connection)
own = sorted(name for label, name in loader.disk_migrations if label == "jobs")
baseline = [name for name in own if name <= "0003_seed"]
assert len(baseline) == 3, own
MigrationExecutor(connection).migrate([("jobs", name) for name in baseline])
for name in own[len(baseline):]:
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

print(sorted(PeriodicTask.objects.values_list("task", flat=True)))
"""

SEEDED = [
    "celery.backend_cleanup",
    "jobs.advance_backfills",
    "jobs.archive_logs",
    "jobs.check_storage",
    "jobs.create_partitions",
    "jobs.index_logs",
    "jobs.prune_history",
    "jobs.prune_logs",
    "jobs.refill_due_window",
    "jobs.sweep_orphans",
]


@pytest.mark.django_db
def test_every_model_change_has_a_migration() -> None:
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


def test_statements_outside_a_transaction_bound_their_locks() -> None:
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
    assert [text for text in statements if not str(text).strip().startswith("SET LOCAL lock_timeout = '2s';")] == []


@pytest.mark.django_db(transaction=True)
def test_a_migration_that_cannot_get_its_lock_gives_up_and_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "MIGRATION_LOCK_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(bootstrap, "LOCK_RETRY_SECONDS", 0.01)
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
def test_rows_go_with_the_execution_or_user_that_they_refer_to() -> None:
    """The database cascades: a row may be inserted while Django deletes what it has read before."""
    user = make_user()
    execution = make_execution(job=make_job(owner=user))
    webhook, _ = create_webhook(owner=user, name="hook", url="https://example.com/", events=WEBHOOK_EVENTS)
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


def test_migrations_build_the_database_undo_it_and_build_it_again(empty_database: EmptyDatabase) -> None:
    done = empty_database.run_python("-c", THERE_AND_BACK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(SEEDED), "the seeds came once"
