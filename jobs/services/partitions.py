"""Keeps a partition ready for each of the coming days."""

from __future__ import annotations

import logging
from datetime import date, timedelta

from django.db import IntegrityError, connection, transaction
from psycopg import sql as compose

from jobs import conf
from jobs.services.database import bounded

logger = logging.getLogger(__name__)

TABLES = ("jobs_logchunk", "jobs_executionevent")


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
    return f"{day:%Y-%m-%d}" if table == "jobs_logchunk" else f"{day:%Y-%m-%d} 00:00:00+00"
