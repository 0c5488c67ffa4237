"""What an audit of firings found, as values, and the tally that collects it.

A tally's size does not depend on how much it counts: lateness goes into buckets, differences are listed up to a limit
and counted beyond it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil, log
from uuid import UUID

# Each bucket is this much wider than the one before: percentiles are exact to one per cent.
_GROWTH = log(1.01)
_MICROSECOND = timedelta(microseconds=1)


def shown(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


class What(StrEnum):
    """A difference that nothing explains."""

    ABSENT = "absent"  # due and settled, and nothing accounts for it
    OVERDUE = "overdue"  # due, and no beat has settled it in time
    EXTRA = "extra"  # accounted for, but never due
    DUPLICATE = "duplicate"  # accounted for more than once
    EARLY = "early"  # fired before the moment it was due
    UNCOMPUTABLE = "uncomputable"  # the schedule's history does not say what was due


@dataclass(frozen=True, slots=True)
class Difference:
    schedule_id: UUID
    instant: datetime | None  # None: of the schedule as a whole
    what: What
    count: int = 1  # how many instants from this one on


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of those that fired: from the moment an instant was due, with jitter, to its execution, in milliseconds."""

    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Audit:
    """`expected` is the sum of `fired`, `missed`, `skipped`, `dropped`, `absent` and `overdue`.

    `from_` is where the audit began: where it was asked to, or later if retention has pruned what was before.
    """

    from_: datetime
    to: datetime
    pruned_before: datetime | None  # nothing can be said about instants before it; None: nothing was pruned yet
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
    quarantined: int
    lateness_ms: Lateness | None
    differences: tuple[Difference, ...]

    @property
    def clean(self) -> bool:
        """Whether every instant is explained."""
        return not any((self.absent, self.overdue, self.extra, self.duplicate, self.early, self.uncomputable))

    def as_json(self) -> dict[str, object]:
        """As the API and the command answer it; instants in UTC with a Z."""
        instants = ("from_", "to", "pruned_before")
        rest = {name: value for name, value in asdict(self).items() if name not in (*instants, "differences")}
        return {
            "clean": self.clean,
            "from": shown(self.from_),
            "to": shown(self.to),
            "pruned_before": self.pruned_before and shown(self.pruned_before),
            **rest,
            "differences": [
                {
                    "schedule_id": str(each.schedule_id),
                    "instant": each.instant and shown(each.instant),
                    "what": each.what.value,
                    "count": each.count,
                }
                for each in self.differences
            ],
        }


@dataclass(slots=True)
class Tally:
    """Counts while the schedules are walked."""

    examples: int
    schedules: int = 0
    quarantined: int = 0
    executions: int = 0
    states: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    found: Counter[What] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    late: Counter[int] = field(default_factory=Counter)
    latest: int = 0

    def differ(self, schedule_id: UUID, instant: datetime | None, what: What, count: int = 1) -> None:
        self.found[what] += count
        if len(self.differences) < self.examples:
            self.differences.append(Difference(schedule_id, instant, what, count))

    def add_lateness(self, late: timedelta) -> None:
        microseconds = max(late // _MICROSECOND, 0)
        self.latest = max(self.latest, microseconds)
        self.late[ceil(log(microseconds) / _GROWTH) if microseconds else 0] += 1

    def audit(self, from_: datetime, to: datetime, pruned_before: datetime | None = None) -> Audit:
        missed, skipped = self.states["missed"], self.states["skipped"]
        fired = self.states.total() - missed - skipped
        absent, overdue = self.found[What.ABSENT], self.found[What.OVERDUE]
        return Audit(
            from_=from_,
            to=to,
            pruned_before=pruned_before,
            schedules=self.schedules,
            executions=self.executions,
            expected=fired + missed + skipped + self.dropped + absent + overdue,
            fired=fired,
            missed=missed,
            skipped=skipped,
            dropped=self.dropped,
            absent=absent,
            overdue=overdue,
            extra=self.found[What.EXTRA],
            duplicate=self.found[What.DUPLICATE],
            early=self.found[What.EARLY],
            uncomputable=self.found[What.UNCOMPUTABLE],
            quarantined=self.quarantined,
            lateness_ms=self._lateness(),
            differences=tuple(self.differences),
        )

    def _lateness(self) -> Lateness | None:
        if not self.late:
            return None
        p50, p90, p99 = self._percentiles(0.5, 0.9, 0.99)
        return Lateness(p50, p90, p99, self.latest / 1000)

    def _percentiles(self, *wanted: float) -> Iterator[float]:
        total, seen = self.late.total(), 0
        buckets = iter(sorted(self.late.items()))
        bucket = 0
        for share in wanted:
            while seen < share * total:
                bucket, count = next(buckets)
                seen += count
            yield round(min(1.01**bucket, self.latest) / 1000, 3)
