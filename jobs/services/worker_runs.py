"""What a worker over HTTP says of a run, where that is more than the fenced step itself: its outputs and its end.

A name is given to an output only once the store holds its bytes: what a worker says it left behind is there.
"""

from __future__ import annotations

import hashlib

from jobs import conf, sql, storage
from jobs.errors import InvalidInput, OutputNotUploaded, StaleAttempt
from jobs.models import Execution
from jobs.protocol import Hold, Moved, Report
from jobs.services import attempts
from jobs.services.artifacts import Upload
from jobs.states import STARTED, values

SECONDS = 5.0


def announce_output(hold: Hold, *, sha256: str, size: int) -> Upload:
    bounds = {"max_files": conf.MAX_OUTPUT_FILES, "max_bytes": conf.MAX_OUTPUT_BYTES}
    # Both, in the width of a hash: the size is what is counted and what the upload is signed for.
    announced = hashlib.sha256(f"{sha256}:{size}".encode()).hexdigest()
    wanted = hold.parameters() | bounds | {"announced": announced, "size": size}
    if not sql.execute("announce_output", wanted, within=SECONDS):
        check_hold(hold)
        raise InvalidInput(
            "size",
            f"An attempt may leave {conf.MAX_OUTPUT_FILES} outputs of {conf.MAX_OUTPUT_BYTES} bytes in all;"
            " leave this one out.",
        )
    key = storage.output_key(hold.execution_id, hold.attempt, sha256)
    return Upload(*storage.presign_output_upload(key, sha256, size))


def complete_attempt(hold: Hold, report: Report) -> Moved:
    if report.outputs:
        # Before the store is asked: a stale worker costs us nothing more.
        check_hold(hold)
        stored = storage.stored_outputs(hold.execution_id, hold.attempt)
        if any((output.sha256, output.size) not in stored for output in report.outputs):
            raise OutputNotUploaded
    return attempts.finish_attempt(hold, report)


def check_hold(hold: Hold) -> None:
    held = Execution.objects.filter(
        id=hold.execution_id,
        attempt=hold.attempt,
        worker_id=hold.worker_id,
        incarnation=hold.incarnation,
        state__in=values(STARTED),
    )
    if not held.exists():
        raise StaleAttempt
