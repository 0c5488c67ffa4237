"""What runs left behind: published within the owner's quota, deleted on request.

A file that there is no room for is left out and said so; the execution ends as its program did.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from jobs import sql, storage
from jobs.errors import IllegalTransition, StorageUnavailable
from jobs.models import Attempt, Output
from jobs.protocol import Hold, StoredOutput
from jobs.services import storage_quota
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.dead_letters import lock_execution
from jobs.states import TERMINAL
from jobs.storable import storable_text

logger = logging.getLogger(__name__)

MAX_ERROR_LENGTH = 4000
FILES_NAMED = 20
# Longer than the object store is waited for.
HOLD_SECONDS = 45.0


def publish_outputs(hold: Hold, outputs: Sequence[StoredOutput]) -> None:
    """In the transaction that ends the attempt, and last of all in it: see `storage_quota.lock_use`."""
    attempt = Attempt.objects.select_related("execution__job").get(execution_id=hold.execution_id, number=hold.attempt)
    owner_id = attempt.execution.job.owner_id
    use = storage_quota.lock_use(owner_id)
    fits = storage_quota.fitting(use, [output.size for output in outputs])
    kept = [output for output, fit in zip(outputs, fits, strict=True) if fit]
    Output.objects.bulk_create(
        Output(attempt=attempt, owner_id=owner_id, name=o.name, size=o.size, sha256=o.sha256) for o in kept
    )
    left_out = [output for output, fit in zip(outputs, fits, strict=True) if not fit]
    if use is not None and left_out:
        said = _say_left_out(left_out, use.quota_bytes // storage_quota.MEGABYTE)
        error = storable_text("\n".join(filter(None, [attempt.error, said])), MAX_ERROR_LENGTH)
        Attempt.objects.filter(id=attempt.id).update(error=error)
        unwanted = {output.sha256 for output in left_out} - {output.sha256 for output in kept}
        keys = [storage.output_key(hold.execution_id, hold.attempt, sha256) for sha256 in sorted(unwanted)]
        transaction.on_commit(lambda: _forget(keys))


def delete_outputs(execution_id: UUID, *, by: str) -> None:
    """Frees what an ended execution left; doing it again changes nothing."""
    with transaction.atomic(), bounded(statement_seconds=HOLD_SECONDS):
        execution = lock_execution(execution_id)
        if execution.state not in TERMINAL:
            raise IllegalTransition(f"The execution has not ended yet ({execution.state}); cancel it first.")
        outputs = Output.objects.filter(attempt__execution_id=execution_id)
        files = list(outputs.values_list("attempt__number", "sha256", "size"))
        # Before the rows: killed in between, they are still listed and can be deleted again.
        storage.delete_objects([storage.output_key(execution_id, number, sha256) for number, sha256, _ in set(files)])
        sql.execute("delete_outputs", {"execution_id": execution_id, "by": by})
        if files:
            told = {"files": len(files), "bytes": sum(size for *_, size in files)}
            job = execution.job
            record("execution.outputs_deleted", execution, owner_id=job.owner_id, name=job.name, before=told)


def _say_left_out(outputs: Sequence[StoredOutput], quota_mb: int) -> str:
    lines = [
        f"{output.name}: left out: the owner's storage quota of {quota_mb} MB is used up"
        for output in outputs[:FILES_NAMED]
    ]
    more = len(outputs) - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _forget(keys: Sequence[str]) -> None:
    """Nobody names them: what cannot be deleted now is an orphan."""
    try:
        storage.delete_objects(keys)
    except StorageUnavailable as error:
        logger.warning("Outputs that were left out stay until they are swept: %s", error)
