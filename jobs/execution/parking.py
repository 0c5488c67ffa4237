"""Parking: take executions that a limit holds back off the candidates for placement, and return them.

A placement pass scans candidates by rank. Without parking, every pass would scan everything that waits for a job or an
owner at their limit.

* A job's line: its first ready executions, as many as its limit allows, are candidates, however many are active; the
  others are parked. So nothing has to be done when a run finishes: the next one is a candidate already. Only removing a
  candidate (place, cancel, expire) or raising the limit unparks executions.
* An owner's line: what a pass finds while its owner is at their limit is parked; every pass unparks executions of
  owners with capacity.

Parking only saves work: the plan enforces the limits. It happens under the pool's placement lock; `sweep_parked`
repairs what goes wrong all the same (a cancel that races the parking of the next in line).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from jobs.access.quotas import LimitedOwner
from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.models import JobLine

FIRST_JOB_ID = UUID(int=0)
# Per job and step; the next step adds more.
MAX_UNPARKED_EXECUTIONS = 200


@dataclass(frozen=True, slots=True)
class ParkedExecution:
    """A candidate that a limit holds back: its owner's if one is given, else its job's."""

    execution_id: UUID
    line: JobLine | None
    owner_id: int | None = None


@dataclass(frozen=True, slots=True)
class ParkingSweepResult:
    after: UUID = FIRST_JOB_ID  # where the next sweep continues
    unparked: int = 0


def park(held_back: Iterable[ParkedExecution]) -> int:
    rows = [{"execution_id": str(p.execution_id), "job_line": p.line, "owner_line": p.owner_id} for p in held_back]
    return sql.execute("park_executions", {"rows": json.dumps(rows)}) if rows else 0


def unpark(job_ids: Collection[UUID]) -> int:
    """Unpark after candidates of these jobs were removed or limits raised, in a statement of its own. Idempotent."""
    if not job_ids:
        return 0
    return sql.execute("unpark_executions", {"job_ids": sorted(job_ids), "most": MAX_UNPARKED_EXECUTIONS})


def unpark_owners(limited: Mapping[int, LimitedOwner]) -> int:
    """Unpark executions of owners with capacity; `limited`: those with a limit and active executions."""
    rooms = [{"owner_id": owner.owner_id, "room": owner.limit - owner.active} for owner in limited.values()]
    return sql.execute("unpark_executions_of_owners", {"rooms": json.dumps(rooms), "most": MAX_UNPARKED_EXECUTIONS})


def sweep_parked(*, after: UUID = FIRST_JOB_ID, limit: int = limits.SWEEP_BATCH_JOBS) -> ParkingSweepResult:
    """Unpark executions of the next jobs, ordered by id; start over after the last job."""
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        found = sql.fetch_ids("find_jobs_with_parked", {"after": after, "limit": limit})
        unparked = unpark(found)
    return ParkingSweepResult(found[-1] if len(found) == limit else FIRST_JOB_ID, unparked)
