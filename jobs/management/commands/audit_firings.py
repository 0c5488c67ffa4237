"""Checks that every instant that was due in a time range is accounted for."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobs.management.audit_command import AuditCommand
from jobs.verify.firings import MAX_EXAMPLES, TOLERANCE_SECONDS, audit_firings
from jobs.verify.report import FiringAudit


class Command(AuditCommand):
    help = "Recomputes every instant that was due and compares it with the executions; exit code 1 on a difference."
    default_examples = MAX_EXAMPLES
    label_width = 13

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tolerance", type=float, default=TOLERANCE_SECONDS, metavar="SECONDS")

    def audit(self, from_: datetime, to: datetime, **options: Any) -> FiringAudit:
        return audit_firings(
            from_, to, job_id=options["job"], examples=options["examples"], tolerance_seconds=options["tolerance"]
        )

    def format_fields(self, shown: Mapping[str, Any]) -> dict[str, object]:
        lateness = shown["lateness_ms"] or {}
        text = "  ".join(f"{name} {value:g}" for name, value in lateness.items())
        return super().format_fields(shown) | {"lateness_ms": text or "-"}

    def format_difference(self, difference: Mapping[str, Any]) -> str:
        instant = "" if difference["instant"] is None else f" {difference['instant']}"
        return f"{difference['count']} of schedule {difference['schedule_id']}{instant}"
