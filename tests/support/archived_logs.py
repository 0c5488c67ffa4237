"""Logs of finished attempts, aged or only in the archive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from django.db import connection
from django.db.models import F

from jobs.db.partitions import LOG_TABLES, create_partitions
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, RunReport
from jobs.execution.attempts import finish_attempt
from jobs.logs.store import append_chunks
from jobs.models import Attempt, AttemptLog, LogChunk
from jobs.models.ids import first_id
from tests.support.factories import make_execution, make_worker, run_on

MINUTE = timedelta(minutes=1)


def chunk(sequence: int, data: bytes = b"line\n", stream: str = "stdout") -> Chunk:
    return Chunk(sequence, stream, datetime.now(UTC), data)


def write_log(*written: Chunk, truncated: bool = False, fence: AttemptFence | None = None) -> AttemptFence:
    """Write the log of an attempt that finished a minute ago."""
    fence = fence or run_on(make_worker(), make_execution())
    append_chunks(fence, written)
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0, log_truncated=truncated))
    Attempt.objects.filter(execution_id=fence.execution_id, number=fence.attempt).update(
        ended_at=F("ended_at") - MINUTE
    )
    return fence


def log_of(fence: AttemptFence) -> AttemptLog:
    return AttemptLog.objects.get(execution_id=fence.execution_id, attempt=fence.attempt)


def index_logs(fences: Sequence[AttemptFence]) -> None:
    """Mark the logs as indexed."""
    AttemptLog.objects.filter(execution_id__in=[fence.execution_id for fence in fences]).update(
        indexed_at=datetime.now(UTC)
    )


def age_log(fence: AttemptFence, days: int, *, partition: bool = True) -> date:
    """Move the attempt's claim and its chunks some days into the past."""
    at = datetime.now(UTC) - timedelta(days=days)
    if partition:
        create_partitions(today=at.date(), days=0)
    attempts = Attempt.objects.filter(execution_id=fence.execution_id, number=fence.attempt)
    attempts.update(id=first_id(at), claimed_at=at)
    log_key = {"execution_id": fence.execution_id, "attempt": fence.attempt}
    AttemptLog.objects.filter(**log_key).update(day=at.date())
    chunks = list(LogChunk.objects.filter(**log_key))
    LogChunk.objects.filter(**log_key).delete()
    for each in chunks:
        each.day = at.date()
    LogChunk.objects.bulk_create(chunks)
    return at.date()


def partitions_of(day: date) -> list[str]:
    names = [f"{table}_{day:%Y%m%d}" for table in LOG_TABLES]
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL", [names])
        return sorted(name for (name,) in cursor.fetchall())
