"""Keeps a partition ready for each of the coming days, and drops the events that retention no longer wants.

What befell an unfinished execution is never dropped, however old it is. Logs have rules of their own: `log_retention`.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, date, datetime, timedelta

from django.db import IntegrityError, OperationalError, connection, transaction
from psycopg import sql as compose

from jobs import conf
from jobs.models.ids import first_id
from jobs.services.database import bounded

logger = logging.getLogger(__name__)

# By what each is partitioned.
EVENTS, LOGS = "jobs_executionevent", ("jobs_logchunk", "jobs_logsegment")
DAY_COLUMNS = dict.fromkeys(LOGS, "day") | {EVENTS: "created_at"}
TABLES = tuple(DAY_COLUMNS)
# A drop has to have the table to itself, and whoever writes a log waits behind it: it gives up soon and comes again.
DROP_LOCK_SECONDS = 0.5
BATCH_ROWS = 5000
MAX_BATCHES = 100


def create_partitions(*, today: date, days: int = conf.PARTITIONS_AHEAD_DAYS) -> list[str]:
    """Creates what is missing and returns the names it created."""
    created = []
    for day in (today + timedelta(days=offset) for offset in range(days + 1)):
        for table in TABLES:
            try:
                if _create_partition(table, day):
                    created.append(f"{table}_{day:%Y%m%d}")
            except IntegrityError:
                # Rows of that day came before their partition: they stay in the default one, and are found there.
                logger.warning("%s keeps the rows of %s in its default partition", table, day)
    return created


def drop_events(*, before: date) -> list[str]:
    """Drops the events of the days before, with what lies in the default partition; returns the names it dropped."""
    dropped = []
    for day in days_of(EVENTS):
        name = f"{EVENTS}_{day:%Y%m%d}"
        if day >= before:
            continue
        try:
            if _drop_events(day):
                dropped.append(name)
        except OperationalError as error:
            logger.info("%s is in use and is dropped another time: %s", name, str(error).strip())
    for _ in range(MAX_BATCHES):
        if _empty_default(before) < BATCH_ROWS:
            break
    return dropped


def days_of(table: str) -> list[date]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = %s::regclass ORDER BY c.relname",
            [table],
        )
        found = [re.fullmatch(rf"{table}_(\d{{8}})", name) for (name,) in cursor.fetchall()]
    return [datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() for match in found if match]


def _drop_events(day: date) -> bool:
    name = compose.Identifier(f"{EVENTS}_{day:%Y%m%d}")
    with (
        transaction.atomic(),
        bounded(statement_seconds=30, lock_seconds=DROP_LOCK_SECONDS),
        connection.cursor() as cursor,
    ):
        # Ids grow with time: only what was created by the end of that day can have written into it.
        midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
        cursor.execute(
            compose.SQL(
                "SELECT EXISTS (SELECT FROM jobs_execution e WHERE e.id < %s AND e.ended_at IS NULL"
                " AND EXISTS (SELECT FROM {} p WHERE p.execution_id = e.id))"
            ).format(name),
            [first_id(midnight)],
        )
        if cursor.fetchone()[0]:
            return False
        cursor.execute(compose.SQL("DROP TABLE {}").format(name))
    return True


def _empty_default(before: date) -> int:
    with transaction.atomic(), bounded(statement_seconds=30), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM jobs_executionevent_default WHERE ctid = ANY(ARRAY("
            " SELECT d.ctid FROM jobs_executionevent_default d WHERE d.created_at < %s"
            " AND NOT EXISTS (SELECT FROM jobs_execution e WHERE e.id = d.execution_id AND e.ended_at IS NULL)"
            " LIMIT %s))",
            [_bound(EVENTS, before), BATCH_ROWS],
        )
        count: int = cursor.rowcount
    return count


def _create_partition(table: str, day: date) -> bool:
    name = f"{table}_{day:%Y%m%d}"
    with transaction.atomic(), bounded(statement_seconds=30), connection.cursor() as cursor:
        # Two tasks at once must not both find it missing.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('punctual.partitions', 0))")
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name])
        if cursor.fetchone()[0]:
            return False
        cursor.execute(
            compose.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(
                compose.Identifier(name),
                compose.Identifier(table),
                compose.Literal(_bound(table, day)),
                compose.Literal(_bound(table, day + timedelta(days=1))),
            )
        )
    return True


def _bound(table: str, day: date) -> str:
    return f"{day:%Y-%m-%d}" if DAY_COLUMNS[table] == "day" else f"{day:%Y-%m-%d} 00:00:00+00"
