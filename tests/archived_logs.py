"""Logs as attempts leave them, and as retention leaves them: in the archive alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from django.db import connection
from django.db.models import F

from jobs.models import Attempt, AttemptLog, LogChunk
from jobs.models.ids import first_id
from jobs.protocol import Chunk, Hold, Report
from jobs.services.attempts import finish_attempt
from jobs.services.logs import append_chunks
from jobs.services.partitions import LOGS, create_partitions
from jobs.states import Reason
from tests.factories import make_execution, make_worker, run_on

MINUTE = timedelta(minutes=1)


def chunk(sequence: int, data: bytes = b"line\n", stream: str = "stdout") -> Chunk:
    return Chunk(sequence, stream, datetime.now(UTC), data)


def write_log(*written: Chunk, truncated: bool = False, hold: Hold | None = None) -> Hold:
    """Of an attempt that ended a minute ago."""
    hold = hold or run_on(make_worker(), make_execution())
    append_chunks(hold, written)
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0, log_truncated=truncated))
    Attempt.objects.filter(execution_id=hold.execution_id, number=hold.attempt).update(ended_at=F("ended_at") - MINUTE)
    return hold


def log_of(hold: Hold) -> AttemptLog:
    return AttemptLog.objects.get(execution_id=hold.execution_id, attempt=hold.attempt)


def index_logs(holds: Sequence[Hold]) -> None:
    """As if all of them could be searched."""
    AttemptLog.objects.filter(execution_id__in=[hold.execution_id for hold in holds]).update(
        indexed_at=datetime.now(UTC)
    )


def age_log(hold: Hold, days: int, *, partition: bool = True) -> date:
    """As if the attempt had been claimed so many days ago."""
    at = datetime.now(UTC) - timedelta(days=days)
    if partition:
        create_partitions(today=at.date(), days=0)
    attempts = Attempt.objects.filter(execution_id=hold.execution_id, number=hold.attempt)
    attempts.update(id=first_id(at), claimed_at=at)
    mine = {"execution_id": hold.execution_id, "attempt": hold.attempt}
    AttemptLog.objects.filter(**mine).update(day=at.date())
    chunks = list(LogChunk.objects.filter(**mine))
    LogChunk.objects.filter(**mine).delete()
    for each in chunks:
        each.day = at.date()
    LogChunk.objects.bulk_create(chunks)
    return at.date()


def partitions_of(day: date) -> list[str]:
    names = [f"{table}_{day:%Y%m%d}" for table in LOGS]
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL", [names])
        return sorted(name for (name,) in cursor.fetchall())
