"""Outputs and outcomes of REST workers, where more is needed than the fenced transition.

An attempt finishes only after the object store holds every output that the worker reports.
"""

from __future__ import annotations

import hashlib

from jobs.db import sql
from jobs.domain import limits
from jobs.domain.errors import InvalidInput, OutputNotUploaded, StaleAttempt
from jobs.domain.states import STARTED, sorted_values
from jobs.domain.worker_protocol import AttemptFence, MovedExecution, RunReport
from jobs.execution import attempts
from jobs.models import Execution
from jobs.storage import s3
from jobs.storage.artifacts import Upload

STATEMENT_TIMEOUT_SECONDS = 5.0


def announce_output(fence: AttemptFence, *, sha256: str, size: int) -> Upload:
    bounds = {"max_files": limits.MAX_OUTPUT_FILES, "max_bytes": limits.MAX_OUTPUT_BYTES}
    # The size as well: it counts against the limits, and the upload is signed for it.
    announced = hashlib.sha256(f"{sha256}:{size}".encode()).hexdigest()
    wanted = fence.parameters() | bounds | {"announced": announced, "size": size}
    if not sql.execute("announce_output", wanted, timeout_seconds=STATEMENT_TIMEOUT_SECONDS):
        check_hold(fence)
        raise InvalidInput(
            "size",
            f"An attempt may leave {limits.MAX_OUTPUT_FILES} outputs of {limits.MAX_OUTPUT_BYTES} bytes in all;"
            " leave this one out.",
        )
    key = s3.output_key(fence.execution_id, fence.attempt, sha256)
    return Upload(*s3.presign_upload(key, sha256, size))


def complete_attempt(fence: AttemptFence, report: RunReport) -> MovedExecution:
    if report.outputs:
        # Before reading the store: a stale worker costs nothing more.
        check_hold(fence)
        stored = s3.list_stored_outputs(fence.execution_id, fence.attempt)
        if any((output.sha256, output.size) not in stored for output in report.outputs):
            raise OutputNotUploaded
    return attempts.finish_attempt(fence, report)


def check_hold(fence: AttemptFence) -> None:
    held = Execution.objects.filter(
        id=fence.execution_id,
        attempt=fence.attempt,
        worker_id=fence.worker_id,
        incarnation=fence.incarnation,
        state__in=sorted_values(STARTED),
    )
    if not held.exists():
        raise StaleAttempt
