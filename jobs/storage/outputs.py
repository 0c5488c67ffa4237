"""Publishes the output files of runs within the owner's quota, and deletes them on request.

A file that exceeds the quota is left out and named in the attempt's error; the execution's outcome does not change.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from jobs.audit.log import record_change
from jobs.db import sql
from jobs.db.locks import lock_execution
from jobs.db.transactions import with_timeouts
from jobs.domain.errors import IllegalTransition, StorageUnavailable
from jobs.domain.states import TERMINAL
from jobs.domain.text_validation import to_storable_text
from jobs.domain.worker_protocol import AttemptFence, StoredOutput
from jobs.models import Attempt, Output
from jobs.storage import quota, s3
from jobs.storage.artifacts import STORAGE_LOCK_TIMEOUT_SECONDS

logger = logging.getLogger(__name__)

MAX_ERROR_LENGTH = 4000
MAX_FILES_NAMED = 20


def publish_outputs(fence: AttemptFence, outputs: Sequence[StoredOutput]) -> None:
    """Store the rows of the outputs that fit into the quota.

    Call it last in the transaction that finishes the attempt, because of the lock order of `quota.lock_usage`.
    """
    attempt = Attempt.objects.select_related("execution__job").get(
        execution_id=fence.execution_id, number=fence.attempt
    )
    owner_id = attempt.execution.job.owner_id
    usage = quota.lock_usage(owner_id)
    fits = quota.find_fitting(usage, [output.size for output in outputs])
    kept = [output for output, fit in zip(outputs, fits, strict=True) if fit]
    Output.objects.bulk_create(
        Output(attempt=attempt, owner_id=owner_id, name=o.name, size=o.size, sha256=o.sha256) for o in kept
    )
    left_out = [output for output, fit in zip(outputs, fits, strict=True) if not fit]
    if usage is not None and left_out:
        description = _describe_left_out(left_out, usage.quota_bytes // quota.MEGABYTE)
        error = to_storable_text("\n".join(filter(None, [attempt.error, description])), MAX_ERROR_LENGTH)
        Attempt.objects.filter(id=attempt.id).update(error=error)
        unwanted = {output.sha256 for output in left_out} - {output.sha256 for output in kept}
        keys = [s3.output_key(fence.execution_id, fence.attempt, sha256) for sha256 in sorted(unwanted)]
        transaction.on_commit(lambda: _delete_left_out(keys))


def delete_outputs(execution_id: UUID, *, by: str) -> None:
    """Delete the outputs of a finished execution. Idempotent."""
    with transaction.atomic(), with_timeouts(statement_seconds=STORAGE_LOCK_TIMEOUT_SECONDS):
        execution = lock_execution(execution_id)
        if execution.state not in TERMINAL:
            raise IllegalTransition(f"The execution has not ended yet ({execution.state}); cancel it first.")
        outputs = Output.objects.filter(attempt__execution_id=execution_id)
        files = list(outputs.values_list("attempt__number", "sha256", "size"))
        # Before the rows: after a crash in between, the outputs are still listed and can be deleted again.
        s3.delete_objects([s3.output_key(execution_id, number, sha256) for number, sha256, _ in set(files)])
        sql.execute("delete_outputs", {"execution_id": execution_id, "by": by})
        if files:
            before = {"files": len(files), "bytes": sum(size for *_, size in files)}
            job = execution.job
            record_change("execution.outputs_deleted", execution, owner_id=job.owner_id, name=job.name, before=before)


def _describe_left_out(outputs: Sequence[StoredOutput], quota_mb: int) -> str:
    lines = [
        f"{output.name}: left out: the owner's storage quota of {quota_mb} MB is used up"
        for output in outputs[:MAX_FILES_NAMED]
    ]
    more = len(outputs) - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _delete_left_out(keys: Sequence[str]) -> None:
    """Delete objects without rows; those that cannot be deleted now are left to the orphan sweep."""
    try:
        s3.delete_objects(keys)
    except StorageUnavailable as error:
        logger.warning("Could not delete outputs that exceed the quota; the orphan sweep will: %s", error)
