"""Says whether every instant that was due in a range of time is accounted for; exit code 1 if not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from jobs.errors import InvalidInput
from jobs.services.audit_report import Audit
from jobs.services.auditing import EXAMPLES, TOLERANCE_SECONDS, audit_firings

DIFFERENCES = 1


class Command(BaseCommand):
    requires_system_checks = ()
    help = "Recomputes every instant that was due and compares it with the executions; exit code 1 on a difference."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="first", type=_instant, required=True, metavar="ISO")
        parser.add_argument("--to", dest="last", type=_instant, metavar="ISO", help="Default: now.")
        parser.add_argument("--job", type=UUID, metavar="ID", help="Only the schedules of this job.")
        parser.add_argument("--tolerance", type=float, default=TOLERANCE_SECONDS, metavar="SECONDS")
        parser.add_argument("--examples", type=int, default=EXAMPLES, metavar="N", help="List so many differences.")
        parser.add_argument("--json", action="store_true")

    def handle(
        self,
        *args: object,
        first: datetime,
        last: datetime | None,
        job: UUID | None,
        tolerance: float,
        examples: int,
        json: bool,
        **options: object,
    ) -> None:
        try:
            audit = audit_firings(
                first, last or datetime.now(UTC), job_id=job, tolerance_seconds=tolerance, examples=examples
            )
        except InvalidInput as error:
            raise CommandError(error.message, returncode=2) from None
        self.stdout.write(_as_json(audit) if json else _as_text(audit))
        if not audit.clean:
            sys.exit(DIFFERENCES)


def _instant(word: str) -> datetime:
    try:
        instant = datetime.fromisoformat(word)
    except ValueError:
        raise ArgumentTypeError(f"{word!r} is not an instant: write it as 2030-01-31T09:00:00Z.") from None
    if instant.tzinfo is None:
        raise ArgumentTypeError(f"{word!r} has no UTC offset: append Z, or an offset such as +01:00.")
    return instant


def _as_json(audit: Audit) -> str:
    return json.dumps(audit.as_json(), indent=2)


def _as_text(audit: Audit) -> str:
    shown = audit.as_json()
    shown.pop("differences")
    lateness = audit.lateness_ms
    shown["lateness_ms"] = (
        "-"
        if lateness is None
        else f"p50 {lateness.p50:g}  p90 {lateness.p90:g}  p99 {lateness.p99:g}  max {lateness.max:g}"
    )
    shown["pruned_before"] = shown["pruned_before"] or "-"
    lines = [f"{name:13} {value}" for name, value in shown.items()]
    for each in audit.differences:
        instant = "" if each.instant is None else f" {each.instant.isoformat()}"
        lines.append(f"{each.what.value:13} {each.count} of schedule {each.schedule_id}{instant}")
    if audit.from_ == audit.pruned_before:
        lines.append("What was before is pruned, and nothing can be said about it.")
    lines.append("Clean." if audit.clean else "There are differences that nothing explains.")
    return "\n".join(lines)
