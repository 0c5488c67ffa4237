"""Writes down every change that somebody asked for, in the transaction of the change.

Neither is ever there without the other. What the machine does by itself is none: executions have events for that.
No value of a secret or a variable is kept.
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

from jobs import conf, sql
from jobs.models.ids import first_id, new_id
from jobs.services.acting import present_actor
from jobs.services.audit_values import Fields, difference, encoded
from jobs.services.database import bounded
from jobs.services.schedules import database_now
from jobs.storable import storable_text

PRUNE_BATCH = 5000
PRUNE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Change:
    """`action` is what it is done to and what is done, `job.paused`; of before and after only what differs is kept."""

    action: str
    object_id: object
    object_name: str
    owner_id: int | None = None  # None: nobody's
    before: Fields = field(default_factory=dict)
    after: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PruneResult:
    entries: int
    finished: bool


def record(
    action: str,
    thing: Model,
    *,
    owner_id: int | None = None,
    name: str | None = None,
    before: Fields | None = None,
    after: Fields | None = None,
    by: User | None = None,
) -> None:
    """To be called in the transaction of the change, for what was changed; `by` only where the request does not say."""
    said = Change(action, thing.pk, str(thing) if name is None else name, owner_id, before or {}, after or {})
    record_all([said], by=by)


def record_all(changes: Sequence[Change], *, by: User | None = None) -> None:
    """One statement, however many. What is as it was is no change, and leaves no entry."""
    compared = [(change, *difference(change.before, change.after)) for change in changes]
    changed = [(change, before, after) for change, before, after in compared if before or after or not change.before]
    if not changed:
        return
    if not connection.in_atomic_block:
        raise transaction.TransactionManagementError("A change and its entry are committed together or not at all.")
    actor = present_actor(user=by)
    rows = [_row(change, before, after, actor.user_id) for change, before, after in changed]
    sql.execute(
        "record_changes",
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


def prune_entries(*, retention: timedelta, within_seconds: float = PRUNE_SECONDS) -> PruneResult:
    """The oldest first, in small transactions; nothing else may delete an entry."""
    horizon, deadline = database_now() - retention, time.monotonic() + within_seconds
    pruned = 0
    while time.monotonic() < deadline:
        with transaction.atomic(), bounded(statement_seconds=20):
            done = sql.execute(
                "prune_audit_entries", {"bound": first_id(horizon), "horizon": horizon, "limit": PRUNE_BATCH}
            )
        pruned += done
        if done < PRUNE_BATCH:
            return PruneResult(pruned, finished=True)
    return PruneResult(pruned, finished=False)


def _row(change: Change, before: Fields, after: Fields, actor_id: int | None) -> str:
    """As JSON, which one parameter carries for all: arrays of texts would be quoted piece by piece."""
    told = json.dumps(
        {
            "id": str(new_id()),
            "action": change.action,
            "object_id": str(change.object_id),
            "object_name": storable_text(change.object_name, 200),
            "owner_id": actor_id if change.owner_id is None else change.owner_id,
        }
    )
    sides = (encoded(side, conf.MAX_AUDIT_BYTES) for side in (before, after))
    return '{}, "before": {}, "after": {}}}'.format(told[:-1], *sides)
