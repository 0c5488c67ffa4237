"""Drops whole days of archived logs from Postgres when they are old or exceed the size limit.

A day is dropped only when every log of it is archived and indexed; otherwise the result and a log line give the reason
it is kept. So until its execution is pruned, a log is in Postgres or in the archive, whatever fails. Today is kept.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import OperationalError, connection, transaction
from psycopg import sql as compose

from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.partitions import DROP_LOCK_TIMEOUT_SECONDS, LOG_TABLES, list_partition_days
from jobs.db.transactions import with_timeouts
from jobs.models import AttemptLog
from jobs.models.ids import first_id

logger = logging.getLogger(__name__)

MARK_TIMEOUT_SECONDS = 120.0
STATEMENT_TIMEOUT_SECONDS = 30.0
DEFAULT_PARTITION_BATCH_LOGS = 500
MAX_BATCHES = 100
MAX_CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LogPruneResult:
    """`kept`: days that could not be dropped, with the reason; `bytes`: the size of logs left in Postgres."""

    dropped: list[str]
    kept: dict[str, str]
    bytes: int
    excess_bytes: int


def prune_logs(*, keep: timedelta, max_bytes: int) -> LogPruneResult:
    """Drop days older than `keep`, and older days first while logs exceed `max_bytes` (0: unlimited)."""
    now = database_now()
    horizon = (now - keep).date()
    sizes = _measure_days()
    total = sum(sizes.values())
    dropped: list[str] = []
    kept: dict[str, str] = {}
    for day in sorted(day for day in sizes if day is not None and day < now.date()):
        if day >= horizon and (not max_bytes or total <= max_bytes):
            break
        why = _try_drop_day(day)
        if why is None:
            dropped.append(day.isoformat())
            total -= sizes[day]
        else:
            kept[day.isoformat()] = why
    try:
        _empty_default_partition(horizon)
    except OperationalError as error:
        kept["default"] = _describe_busy(error)
    excess = max(total - max_bytes, 0) if max_bytes else 0
    if kept:
        reasons = "; ".join(f"{day}: {why}" for day, why in list(kept.items())[:5])
        logger.warning("Kept the logs of %d days in Postgres: %s", len(kept), reasons)
    if excess:
        logger.warning("Logs exceed PUNCTUAL_LOG_MAX_MB by %d bytes; no other day can be dropped", excess)
    return LogPruneResult(dropped, kept, total, excess)


def _measure_days() -> dict[date | None, int]:
    """Return the bytes of each day's partitions; key None: the default partitions."""
    sizes: dict[date | None, int] = {}
    for table in LOG_TABLES:
        for day in [*list_partition_days(table), None]:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT coalesce(pg_total_relation_size(to_regclass(%s)), 0)", [_partition_name(table, day)]
                )
                sizes[day] = sizes.get(day, 0) + int(cursor.fetchone()[0])
    return sizes


def _partition_name(table: str, day: date | None) -> str:
    return f"{table}_{day:%Y%m%d}" if day else f"{table}_default"


def _try_drop_day(day: date) -> str | None:
    """Drop a day, or return the reason it is kept."""
    try:
        _mark_unarchived(day)
        return _drop_day(day)
    except OperationalError as error:
        return _describe_busy(error)


def _describe_busy(error: OperationalError) -> str:
    return f"in use, or the check timed out: {str(error).strip()}"


def _mark_unarchived(day: date) -> None:
    """Queue logs for archiving that have chunks which the archive lacks."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    parameters = {
        "day": day,
        "from_id": first_id(midnight - MAX_CLOCK_SKEW),
        "to_id": first_id(midnight + timedelta(days=1) + MAX_CLOCK_SKEW),
    }
    if marked := sql.execute("mark_unarchived", parameters, timeout_seconds=MARK_TIMEOUT_SECONDS):
        logger.warning("%d logs of %s have chunks that the archive lacks; archiving them again", marked, day)


def _drop_day(day: date) -> str | None:
    tables = [_partition_name(table, day) for table in LOG_TABLES if day in list_partition_days(table)]
    names = compose.SQL(", ").join(map(compose.Identifier, tables))
    with (
        transaction.atomic(),
        with_timeouts(statement_seconds=STATEMENT_TIMEOUT_SECONDS, lock_seconds=DROP_LOCK_TIMEOUT_SECONDS),
        connection.cursor() as cursor,
    ):
        # The lock keeps writers out between the check and the drop; DROP itself waits for readers.
        cursor.execute(compose.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(names))
        waiting = AttemptLog.objects.filter(day=day, settled_at__isnull=True)
        if unsettled := waiting.count():
            unarchived = waiting.filter(pack__isnull=True).count()
            return f"{unsettled} logs are unsettled; of these, {unarchived} are not archived"
        cursor.execute(compose.SQL("DROP TABLE {}").format(names))
    return None


def _empty_default_partition(before: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT day FROM jobs_logchunk_default WHERE day < %s", [before])
        days = [day for (day,) in cursor.fetchall()]
    for day in days:
        _mark_unarchived(day)
    for _ in range(MAX_BATCHES):
        parameters = {"before": before, "limit": DEFAULT_PARTITION_BATCH_LOGS}
        if not sql.execute("empty_default_logs", parameters, timeout_seconds=STATEMENT_TIMEOUT_SECONDS):
            break
