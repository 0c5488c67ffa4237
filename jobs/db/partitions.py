"""Creates the daily partitions ahead of time, and drops those of events past retention.

Events of unfinished executions are never dropped. For logs see `jobs.logs.retention`.
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, date, datetime, timedelta

from django.db import IntegrityError, OperationalError, connection, transaction
from psycopg import sql as compose

from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.models.ids import first_id

logger = logging.getLogger(__name__)

EVENTS_TABLE, LOG_TABLES = "jobs_executionevent", ("jobs_logchunk", "jobs_logsegment")
DAY_COLUMNS = dict.fromkeys(LOG_TABLES, "day") | {EVENTS_TABLE: "created_at"}
PARTITIONED_TABLES = tuple(DAY_COLUMNS)
# Creating or dropping a partition takes locks that block others: give up soon and let the next run retry.
LOCK_TIMEOUT_SECONDS = DROP_LOCK_TIMEOUT_SECONDS = 0.5
# Attaching scans the default partition for rows of the new day, under a lock that blocks all access to it.
ATTACH_TIMEOUT_SECONDS = 5.0
BATCH_ROWS = 5000
MAX_BATCHES = 100


def create_partitions(*, today: date, days: int = limits.PARTITIONS_AHEAD_DAYS) -> list[str]:
    """Create the missing partitions and return their names; the next run retries tables that are locked now."""
    created = []
    busy: set[str] = set()
    for day in (today + timedelta(days=offset) for offset in range(days + 1)):
        for table in PARTITIONED_TABLES:
            if table in busy:
                continue
            try:
                if _create_partition(table, day):
                    created.append(f"{table}_{day:%Y%m%d}")
            except OperationalError as error:
                busy.add(table)
                logger.info("%s is in use; the next run creates its partitions: %s", table, str(error).strip())
            except IntegrityError:
                # Rows of that day arrived before their partition; they stay readable in the default partition.
                logger.warning("%s keeps the rows of %s in its default partition", table, day)
    return created


def drop_event_partitions(*, before: date) -> list[str]:
    """Drop the events of earlier days, also in the default partition; return the names of dropped partitions."""
    dropped = []
    for day in list_partition_days(EVENTS_TABLE):
        name = f"{EVENTS_TABLE}_{day:%Y%m%d}"
        if day >= before:
            continue
        try:
            if _drop_event_partition(day):
                dropped.append(name)
        except OperationalError as error:
            logger.info("%s is in use; the next run drops it: %s", name, str(error).strip())
    for _ in range(MAX_BATCHES):
        if _empty_default_partition(before) < BATCH_ROWS:
            break
    return dropped


def list_partition_days(table: str) -> list[date]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = %s::regclass ORDER BY c.relname",
            [table],
        )
        found = [re.fullmatch(rf"{table}_(\d{{8}})", name) for (name,) in cursor.fetchall()]
    return [datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC).date() for match in found if match]


def _drop_event_partition(day: date) -> bool:
    name = compose.Identifier(f"{EVENTS_TABLE}_{day:%Y%m%d}")
    with (
        transaction.atomic(),
        with_timeouts(statement_seconds=30, lock_seconds=DROP_LOCK_TIMEOUT_SECONDS),
        connection.cursor() as cursor,
    ):
        # Ids grow with time: only executions created by the end of that day have events in it.
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


def _empty_default_partition(before: date) -> int:
    with transaction.atomic(), with_timeouts(statement_seconds=30), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM jobs_executionevent_default WHERE ctid = ANY(ARRAY("
            " SELECT d.ctid FROM jobs_executionevent_default d WHERE d.created_at < %s"
            " AND NOT EXISTS (SELECT FROM jobs_execution e WHERE e.id = d.execution_id AND e.ended_at IS NULL)"
            " LIMIT %s))",
            [_format_bound(EVENTS_TABLE, before), BATCH_ROWS],
        )
        count: int = cursor.rowcount
    return count


def _create_partition(table: str, day: date) -> bool:
    """Create a table and attach it; creating it as a partition would block all access to the parent.

    Attaching blocks only other DDL on the parent, and all access to the default partition, which is usually empty.
    """
    name = f"{table}_{day:%Y%m%d}"
    with (
        transaction.atomic(),
        with_timeouts(statement_seconds=ATTACH_TIMEOUT_SECONDS, lock_seconds=LOCK_TIMEOUT_SECONDS),
        connection.cursor() as cursor,
    ):
        # Two concurrent runs must not both find it missing.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended('punctual.partitions', 0))")
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name])
        if cursor.fetchone()[0]:
            return False
        names = {"name": compose.Identifier(name), "table": compose.Identifier(table)}
        cursor.execute(compose.SQL("CREATE TABLE {name} (LIKE {table} INCLUDING ALL)").format(**names))
        cursor.execute(
            compose.SQL("ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({next})").format(
                **names,
                first=compose.Literal(_format_bound(table, day)),
                next=compose.Literal(_format_bound(table, day + timedelta(days=1))),
            )
        )
    return True


def _format_bound(table: str, day: date) -> str:
    return f"{day:%Y-%m-%d}" if DAY_COLUMNS[table] == "day" else f"{day:%Y-%m-%d} 00:00:00+00"
