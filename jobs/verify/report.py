"""Results of audits, and the tally that collects those of firings.

A tally's size is bounded: lateness goes into buckets, and differences beyond a limit are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil, log
from typing import ClassVar, Generic, Protocol, TypeVar
from uuid import UUID

from jobs.domain.recurrence.bounds import RESOLUTION

# Each bucket is 1 % wider than the one before, which is the precision of the percentiles.
_LOG_BUCKET_RATIO = log(1.01)


def format_instant(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


class DifferenceKind(StrEnum):
    """Kinds of unexplained differences."""

    ABSENT = "absent"  # due and settled, but without a record
    OVERDUE = "overdue"  # due, but not settled in time
    EXTRA = "extra"  # recorded, but never due
    DUPLICATE = "duplicate"  # recorded more than once
    EARLY = "early"  # fired before it was due
    UNCOMPUTABLE = "uncomputable"  # the schedule's history does not determine its instants
    UNARMED = "unarmed"  # a fixed delay without a next instant that no run will arm


@dataclass(frozen=True, slots=True)
class Difference:
    schedule_id: UUID
    instant: datetime | None  # None: the schedule as a whole
    what: DifferenceKind
    count: int = 1  # how many instants from this one on

    def as_json(self) -> dict[str, object]:
        return {
            "schedule_id": str(self.schedule_id),
            "instant": self.instant and format_instant(self.instant),
            "what": self.what.value,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds from when an instant was due, with jitter, to its firing."""

    p50: float
    p90: float
    p99: float
    max: float


class Reportable(Protocol):
    def as_json(self) -> dict[str, object]: ...


Found = TypeVar("Found", bound=Reportable)


@dataclass(frozen=True, slots=True)
class Audit(Generic[Found]):
    """The common part of both audits' results.

    `from_` is where the audit began: as requested, or later if retention has pruned the history before.
    """

    PROBLEMS: ClassVar[tuple[str, ...]]  # the fields that are 0 in a clean audit

    from_: datetime
    to: datetime
    pruned_before: datetime | None  # nothing is known of instants before it; None: nothing was pruned yet
    differences: tuple[Found, ...]

    @property
    def clean(self) -> bool:
        return not any(getattr(self, name) for name in self.PROBLEMS)

    def as_json(self) -> dict[str, object]:
        """Return the result as the API and the command print it; instants in UTC with a Z."""
        values = asdict(self)
        for name in ("from_", "to", "pruned_before", "differences"):
            del values[name]
        return {
            "clean": self.clean,
            "from": format_instant(self.from_),
            "to": format_instant(self.to),
            "pruned_before": self.pruned_before and format_instant(self.pruned_before),
            **values,
            "differences": [difference.as_json() for difference in self.differences],
        }


@dataclass(frozen=True, slots=True)
class FiringAudit(Audit[Difference]):
    """`expected` is the sum of `fired`, `missed`, `skipped`, `dropped`, `absent` and `overdue`."""

    PROBLEMS = tuple(DifferenceKind)

    schedules: int
    executions: int
    expected: int
    fired: int
    missed: int
    skipped: int
    dropped: int
    absent: int
    overdue: int
    extra: int
    duplicate: int
    early: int
    uncomputable: int
    unarmed: int
    quarantined: int
    lateness_ms: Lateness | None


@dataclass(slots=True)
class Tally:
    """Collects the counts of a firing audit."""

    examples: int
    schedules: int = 0
    quarantined: int = 0
    executions: int = 0
    states: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    found: Counter[DifferenceKind] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    late: Counter[int] = field(default_factory=Counter)
    latest: int = 0

    def add_difference(self, schedule_id: UUID, instant: datetime | None, what: DifferenceKind, count: int = 1) -> None:
        self.found[what] += count
        if len(self.differences) < self.examples:
            self.differences.append(Difference(schedule_id, instant, what, count))

    def add_lateness(self, late: timedelta) -> None:
        microseconds = max(late // RESOLUTION, 0)
        self.latest = max(self.latest, microseconds)
        self.late[ceil(log(microseconds) / _LOG_BUCKET_RATIO) if microseconds else 0] += 1

    def audit(self, from_: datetime, to: datetime, pruned_before: datetime | None = None) -> FiringAudit:
        missed, skipped = self.states["missed"], self.states["skipped"]
        fired = self.states.total() - missed - skipped
        found = {kind.value: self.found[kind] for kind in DifferenceKind}
        return FiringAudit(
            from_=from_,
            to=to,
            pruned_before=pruned_before,
            schedules=self.schedules,
            executions=self.executions,
            expected=fired + missed + skipped + self.dropped + found["absent"] + found["overdue"],
            fired=fired,
            missed=missed,
            skipped=skipped,
            dropped=self.dropped,
            quarantined=self.quarantined,
            lateness_ms=self._lateness(),
            differences=tuple(self.differences),
            **found,
        )

    def _lateness(self) -> Lateness | None:
        if not self.late:
            return None
        p50, p90, p99 = self._percentiles(0.5, 0.9, 0.99)
        return Lateness(p50, p90, p99, self.latest / 1000)

    def _percentiles(self, *shares: float) -> Iterator[float]:
        total, seen = self.late.total(), 0
        buckets = iter(sorted(self.late.items()))
        bucket = 0
        for share in shares:
            while seen < share * total:
                bucket, count = next(buckets)
                seen += count
            yield round(min(1.01**bucket, self.latest) / 1000, 3)
