"""Duties that one beat at a time does, under a lease that another takes over when it ends."""

from __future__ import annotations

from uuid import UUID

from jobs import conf, sql


def hold_duty(duty: str, holder: UUID) -> bool:
    """Takes or renews the lease; False while another beat holds it."""
    return bool(sql.execute("hold_duty", {"duty": duty, "holder": holder, "lease_seconds": conf.DUTY_LEASE_SECONDS}))
