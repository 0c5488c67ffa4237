"""Drops whole days of logs from Postgres once they are old, or once there is no room for them; the archive has them.

A day goes only when the archive holds every log of it, and search has seen it; until then it stays, and why is said. So
until its execution is pruned a log is in Postgres or in the archive, whatever fails. Today's stay.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import OperationalError, connection, transaction
from psycopg import sql as compose

from jobs import sql
from jobs.models import AttemptLog
from jobs.models.ids import first_id
from jobs.services.database import bounded
from jobs.services.partitions import DROP_LOCK_SECONDS, LOGS, days_of
from jobs.services.schedules import database_now

logger = logging.getLogger(__name__)

NOTE_SECONDS = 120.0
STATEMENT_SECONDS = 30.0
DEFAULT_LOGS = 500
MAX_BATCHES = 100
CLOCKS_APART = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LogPruneResult:
    """`kept`: days that should have gone, and why they are still there; `bytes`: what logs take in Postgres now."""

    dropped: list[str]
    kept: dict[str, str]
    bytes: int
    excess_bytes: int


def prune_logs(*, keep: timedelta, max_bytes: int) -> LogPruneResult:
    """`max_bytes`: 0 is no bound."""
    now = database_now()
    horizon = (now - keep).date()
    sizes = _measure()
    total = sum(sizes.values())
    dropped: list[str] = []
    kept: dict[str, str] = {}
    for day in sorted(day for day in sizes if day is not None and day < now.date()):
        if day >= horizon and (not max_bytes or total <= max_bytes):
            break
        why = _try_to_drop(day)
        if why is None:
            dropped.append(day.isoformat())
            total -= sizes[day]
        else:
            kept[day.isoformat()] = why
    try:
        _empty_default(horizon)
    except OperationalError as error:
        kept["default"] = _busy(error)
    excess = max(total - max_bytes, 0) if max_bytes else 0
    if kept:
        logger.warning("Logs of %d days stay in Postgres for now: %s", len(kept), "; ".join(_tell(kept)))
    if excess:
        logger.warning("Logs take %d bytes more than PUNCTUAL_LOG_MAX_MB; no other day can be dropped", excess)
    return LogPruneResult(dropped, kept, total, excess)


def _tell(kept: dict[str, str]) -> list[str]:
    return [f"{day}: {why}" for day, why in list(kept.items())[:5]]


def _measure() -> dict[date | None, int]:
    """Bytes of each day that has partitions; of None, what lies in the default ones."""
    sizes: dict[date | None, int] = {}
    for table in LOGS:
        for day in [*days_of(table), None]:
            with connection.cursor() as cursor:
                cursor.execute("SELECT coalesce(pg_total_relation_size(to_regclass(%s)), 0)", [_name(table, day)])
                sizes[day] = sizes.get(day, 0) + int(cursor.fetchone()[0])
    return sizes


def _name(table: str, day: date | None) -> str:
    return f"{table}_{day:%Y%m%d}" if day else f"{table}_default"


def _try_to_drop(day: date) -> str | None:
    """None: it is gone; else why it is not."""
    try:
        _note(day)
        return _drop(day)
    except OperationalError as error:
        return _busy(error)


def _busy(error: OperationalError) -> str:
    return f"in use, or too slow to be looked through: {str(error).strip()}"


def _note(day: date) -> None:
    """What is to be archived first, although nobody knew of it."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    wanted = {
        "day": day,
        "from_id": first_id(midnight - CLOCKS_APART),
        "to_id": first_id(midnight + timedelta(days=1) + CLOCKS_APART),
    }
    if noted := sql.execute("note_unarchived", wanted, within=NOTE_SECONDS):
        logger.warning("%d logs of %s have chunks that the archive does not hold; they are archived again", noted, day)


def _drop(day: date) -> str | None:
    tables = [_name(table, day) for table in LOGS if day in days_of(table)]
    names = compose.SQL(", ").join(map(compose.Identifier, tables))
    with (
        transaction.atomic(),
        bounded(statement_seconds=STATEMENT_SECONDS, lock_seconds=DROP_LOCK_SECONDS),
        connection.cursor() as cursor,
    ):
        # Nobody writes between the look and the drop; who reads is waited for by the drop.
        cursor.execute(compose.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(names))
        waiting = AttemptLog.objects.filter(day=day, settled_at__isnull=True)
        if unsettled := waiting.count():
            unarchived = waiting.filter(pack__isnull=True).count()
            return f"{unsettled} logs are unsettled; of these, {unarchived} are not archived"
        cursor.execute(compose.SQL("DROP TABLE {}").format(names))
    return None


def _empty_default(before: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT day FROM jobs_logchunk_default WHERE day < %s", [before])
        days = [day for (day,) in cursor.fetchall()]
    for day in days:
        _note(day)
    for _ in range(MAX_BATCHES):
        wanted = {"before": before, "limit": DEFAULT_LOGS}
        if not sql.execute("empty_default_logs", wanted, within=STATEMENT_SECONDS):
            break
