"""Logs for tests of searching: written as a worker writes them, indexed by steps that a test calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobs.models import Attempt, Job
from jobs.protocol import Chunk, Hold, Report
from jobs.services.attempts import finish_attempt
from jobs.services.log_indexing import IndexResult, index_logs
from jobs.services.logs import append_chunks
from jobs.states import Reason
from tests.factories import make_execution, make_job, make_worker, run_on


def running(job: Job | None = None) -> Hold:
    return run_on(make_worker(), make_execution(job=job or make_job()))


def write(hold: Hold, *pieces: str | bytes, first: int = 0, stream: str = "stdout", at: datetime | None = None) -> None:
    chunks = [
        Chunk(number, stream, at or datetime.now(UTC), piece.encode() if isinstance(piece, str) else piece)
        for number, piece in enumerate(pieces, first)
    ]
    append_chunks(hold, chunks)


def end_long_ago(hold: Hold) -> None:
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    Attempt.objects.filter(execution_id=hold.execution_id).update(ended_at=datetime.now(UTC) - timedelta(minutes=1))


def index_all() -> IndexResult:
    result = index_logs(within_seconds=30)
    assert result.finished
    return result


def written_by(job: Job | None, *pieces: str | bytes, stream: str = "stdout", at: datetime | None = None) -> Hold:
    """A run that wrote this and goes on; it can be searched."""
    hold = running(job)
    write(hold, *pieces, stream=stream, at=at)
    index_all()
    return hold
