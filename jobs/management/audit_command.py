"""Base of the audit commands: time range, output, and exit code 1 on differences."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from jobs.domain.errors import InvalidInput

EXIT_DIFFERENCES = 1


class AuditReport(Protocol):
    @property
    def clean(self) -> bool: ...

    def as_json(self) -> dict[str, object]: ...


class AuditCommand(BaseCommand, ABC):
    requires_system_checks = ()
    default_examples = 20
    label_width: int

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="first", type=_parse_instant, required=True, metavar="ISO")
        parser.add_argument("--to", dest="last", type=_parse_instant, metavar="ISO", help="Default: now.")
        parser.add_argument("--job", type=UUID, metavar="ID", help="Only this job.")
        parser.add_argument(
            "--examples", type=int, default=self.default_examples, metavar="N", help="Differences to list."
        )
        parser.add_argument("--json", action="store_true")

    @abstractmethod
    def audit(self, from_: datetime, to: datetime, **options: Any) -> AuditReport: ...

    @abstractmethod
    def format_difference(self, difference: Mapping[str, Any]) -> str: ...

    def format_fields(self, shown: Mapping[str, Any]) -> dict[str, object]:
        fields = {name: value for name, value in shown.items() if name != "differences"}
        return fields | {"pruned_before": fields["pruned_before"] or "-"}

    def handle(self, *args: object, **options: Any) -> None:
        try:
            report = self.audit(options.pop("first"), options.pop("last") or datetime.now(UTC), **options)
        except InvalidInput as error:
            raise CommandError(error.message, returncode=2) from None
        shown = report.as_json()
        self.stdout.write(json.dumps(shown, indent=2) if options["json"] else "\n".join(self._lines(report, shown)))
        if not report.clean:
            sys.exit(EXIT_DIFFERENCES)

    def _lines(self, report: AuditReport, shown: Mapping[str, Any]) -> list[str]:
        rows = [*self.format_fields(shown).items()]
        rows += [(each["what"], self.format_difference(each)) for each in shown["differences"]]
        lines = [f"{label:{self.label_width}} {value}" for label, value in rows]
        if shown["from"] == shown["pruned_before"]:
            lines.append("Earlier history is pruned and cannot be checked.")
        return [*lines, "Clean." if report.clean else "There are differences that nothing explains."]


def _parse_instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not an instant: write it as 2030-01-31T09:00:00Z.") from None
    if instant.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} has no UTC offset: append Z, or an offset such as +01:00.")
    return instant
