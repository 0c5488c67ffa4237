"""Duties that one beat at a time does, under a lease that another takes over when it ends.

A lease alone does not stop a beat that was frozen in the middle of its duty: what it does is compared and set, too.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from jobs import conf, sql

SYSTEM_TASKS = "system tasks"


def hold_duty(duty: str, holder: UUID) -> bool:
    """Takes or renews the lease; False while another beat holds it."""
    return bool(sql.execute("hold_duty", {"duty": duty, "holder": holder, "lease_seconds": conf.DUTY_LEASE_SECONDS}))


def claim_tick(task_id: int, holder: UUID, *, last_run_at: datetime, at: datetime) -> bool:
    """The right to send a system task, once, that was last sent at `last_run_at`; False: it is not ours to send."""
    claim = {"duty": SYSTEM_TASKS, "holder": holder, "task_id": task_id, "last_run_at": last_run_at, "at": at}
    return bool(sql.execute("claim_tick", claim))
