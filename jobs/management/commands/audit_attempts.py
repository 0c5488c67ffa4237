"""Checks that limits held, nothing ran twice at once and nothing waits without a reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobs.management.audit_command import AuditCommand
from jobs.verify.attempts import AttemptAudit, audit_attempts


class Command(AuditCommand):
    help = "Checks that no execution ran twice at once, that limits held and that nothing waits without a reason."
    label_width = 16

    def audit(self, from_: datetime, to: datetime, **options: Any) -> AttemptAudit:
        return audit_attempts(from_, to, job_id=options["job"], examples=options["examples"])

    def format_difference(self, difference: Mapping[str, Any]) -> str:
        limit = difference["limit"]
        counts = "" if limit is None else f" ({difference['active']} active, limit {limit})"
        return f"execution {difference['execution_id']} at {difference['at']}{counts}"
