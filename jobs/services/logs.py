"""What programs wrote: appended by the worker that holds the attempt, read by whoever may see the execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from uuid import UUID

from jobs import conf, sql
from jobs.errors import StaleAttempt
from jobs.models import Attempt, LogChunk
from jobs.protocol import Chunk, Hold, Progress

READ_BATCH = 200
# A batch of chunks may be a megabyte.
SECONDS = 10.0


def append_chunks(
    hold: Hold, chunks: Sequence[Chunk], progress: Progress | None = None, *, capped: bool = True
) -> None:
    """`capped`: the worker leaves out what is too much and is believed; else it is left out, and marked, here.

    How far the run says it is goes along in the same round trip; a run that never says costs nothing for it.
    """
    if not chunks and progress is None:
        return
    parameters = hold.parameters() | {
        "sequences": [c.sequence for c in chunks],
        "streams": [c.stream for c in chunks],
        "times": [c.logged_at for c in chunks],
        "data": [c.data for c in chunks],
    }
    statements = []
    if progress is not None:
        # First, as whoever ends an attempt locks the execution before the attempt, too.
        statements.append("report_progress")
        parameters |= {"percent": progress.percent, "message": progress.message}
    if chunks:
        statements.append("append_log" if capped else "append_bounded_log")
        parameters |= {"max_bytes": conf.MAX_LOG_BYTES, "max_chunks": conf.MAX_LOG_CHUNKS}
    written = sql.execute_together(statements, parameters, within=SECONDS)
    if not written:
        raise StaleAttempt


def read_chunks(execution_id: UUID, attempt: int, *, after: int = -1) -> Iterator[Chunk]:
    """The chunks of one attempt in order, a batch of them in memory at a time."""
    claimed_at = (
        Attempt.objects.filter(execution_id=execution_id, number=attempt).values_list("claimed_at", flat=True).first()
    )
    if claimed_at is None:
        return
    chunks = LogChunk.objects.filter(
        day=claimed_at.astimezone(UTC).date(), execution_id=execution_id, attempt=attempt
    ).order_by("sequence")
    while batch := list(chunks.filter(sequence__gt=after)[:READ_BATCH]):
        for chunk in batch:
            yield Chunk(chunk.sequence, chunk.stream, chunk.logged_at, bytes(chunk.data))
        after = batch[-1].sequence
