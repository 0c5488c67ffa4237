"""Leader leases for tasks that one beat at a time performs; another beat takes over when a lease expires.

A lease alone does not stop a beat that was frozen in mid-task, so its effects are compare-and-set too.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from jobs.db import sql
from jobs.domain import limits
from jobs.models import BeatLease

SYSTEM_TASKS = "system tasks"
REAPING = "reaping"
REPUBLISHING = "republishing"


def acquire_leader_lease(name: str, holder: UUID, lease_seconds: float = limits.LEADER_LEASE_SECONDS) -> bool:
    """Acquire or renew the lease; return False while another beat holds it."""
    return bool(sql.execute("acquire_leader_lease", {"duty": name, "holder": holder, "lease_seconds": lease_seconds}))


def release_leader_leases(holder: UUID) -> None:
    """Release the leases of a stopping beat, so that others take over at once."""
    BeatLease.objects.filter(holder=holder).delete()


def claim_system_task(task_id: int, holder: UUID, *, last_run_at: datetime, at: datetime) -> bool:
    """Claim the right to send a system task last sent at `last_run_at`; False: another beat sends it."""
    claim = {"duty": SYSTEM_TASKS, "holder": holder, "task_id": task_id, "last_run_at": last_run_at, "at": at}
    return bool(sql.execute("claim_tick", claim))
