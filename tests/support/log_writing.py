"""Logs for search tests, appended as a worker does and indexed on demand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, RunReport
from jobs.execution.attempts import finish_attempt
from jobs.logs.indexing import IndexResult, index_logs
from jobs.logs.store import append_chunks
from jobs.models import Attempt, Job
from tests.support.factories import make_execution, make_job, make_worker, run_on


def running(job: Job | None = None) -> AttemptFence:
    return run_on(make_worker(), make_execution(job=job or make_job()))


def write(
    fence: AttemptFence, *pieces: str | bytes, first: int = 0, stream: str = "stdout", at: datetime | None = None
) -> None:
    chunks = [
        Chunk(number, stream, at or datetime.now(UTC), piece.encode() if isinstance(piece, str) else piece)
        for number, piece in enumerate(pieces, first)
    ]
    append_chunks(fence, chunks)


def end_long_ago(fence: AttemptFence) -> None:
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))
    Attempt.objects.filter(execution_id=fence.execution_id).update(ended_at=datetime.now(UTC) - timedelta(minutes=1))


def index_all() -> IndexResult:
    result = index_logs(within_seconds=30)
    assert result.finished
    return result


def written_by(
    job: Job | None, *pieces: str | bytes, stream: str = "stdout", at: datetime | None = None
) -> AttemptFence:
    """Start a run, append its output and index it; the run stays active."""
    fence = running(job)
    write(fence, *pieces, stream=stream, at=at)
    index_all()
    return fence
