"""The audit log: records every requested change, in the transaction of the change.

Automatic changes are not recorded here; executions have events for them. Values of secrets and variables are not
stored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model

from jobs.audit.actor import current_actor
from jobs.audit.snapshots import Snapshot, diff_snapshots, encode_snapshot
from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.text_validation import to_storable_text
from jobs.models.ids import first_id, new_id

PRUNE_BATCH_ENTRIES = 5000
PRUNE_BUDGET_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Change:
    """A change, such as the action `job.paused`; only the differences of `before` and `after` are stored."""

    action: str
    object_id: object
    object_name: str
    owner_id: int | None = None  # None: the actor
    before: Snapshot = field(default_factory=dict)
    after: Snapshot = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PruneResult:
    entries: int
    finished: bool


def record_change(
    action: str,
    thing: Model,
    *,
    owner_id: int | None = None,
    name: str | None = None,
    before: Snapshot | None = None,
    after: Snapshot | None = None,
    by: User | None = None,
) -> None:
    """Record a change in its transaction; `by` names the actor where the request is anonymous."""
    change = Change(action, thing.pk, str(thing) if name is None else name, owner_id, before or {}, after or {})
    record_changes([change], by=by)


def record_changes(changes: Sequence[Change], *, by: User | None = None) -> None:
    """Record changes in one statement; those without a difference are skipped."""
    compared = [(change, *diff_snapshots(change.before, change.after)) for change in changes]
    changed = [(change, before, after) for change, before, after in compared if before or after or not change.before]
    if not changed:
        return
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("A change and its entry are committed together or not at all.")
    actor = current_actor(user=by)
    rows = [_encode_entry(change, before, after, actor.user_id) for change, before, after in changed]
    sql.execute(
        "insert_audit_entries",
        {
            "actor_id": actor.user_id,
            "actor_name": actor.name,
            "token_id": actor.token_id,
            "token_name": actor.token_name,
            "via": actor.via.value,
            "address": actor.address,
            "changes": f"[{','.join(rows)}]",
        },
    )


def prune_entries(*, retention: timedelta, within_seconds: float = PRUNE_BUDGET_SECONDS) -> PruneResult:
    """Delete entries past retention, oldest first, in small transactions; nothing else may delete entries."""
    horizon, deadline = database_now() - retention, time.monotonic() + within_seconds
    pruned = 0
    while time.monotonic() < deadline:
        with transaction.atomic(), with_timeouts(statement_seconds=20):
            count = sql.execute(
                "prune_audit_entries", {"bound": first_id(horizon), "horizon": horizon, "limit": PRUNE_BATCH_ENTRIES}
            )
        pruned += count
        if count < PRUNE_BATCH_ENTRIES:
            return PruneResult(pruned, finished=True)
    return PruneResult(pruned, finished=False)


def _encode_entry(change: Change, before: Snapshot, after: Snapshot, actor_id: int | None) -> str:
    """Encode an entry as JSON: all entries are one parameter, which is cheaper than quoting arrays of texts."""
    head = json.dumps(
        {
            "id": str(new_id()),
            "action": change.action,
            "object_id": str(change.object_id),
            "object_name": to_storable_text(change.object_name, 200),
            "owner_id": actor_id if change.owner_id is None else change.owner_id,
        }
    )
    sides = (encode_snapshot(side, limits.MAX_AUDIT_SNAPSHOT_BYTES) for side in (before, after))
    return '{}, "before": {}, "after": {}}}'.format(head[:-1], *sides)
