"""Checks attempts: never two of one execution at once, never more than a limit.

Pure. Attempts come in order of placement, and memory grows only with the number of concurrent attempts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from typing import NamedTuple

from jobs.verify.report import format_instant

_NEVER = datetime.max.replace(tzinfo=UTC)


class Violation(StrEnum):
    OVERLAPPING = "overlapping"  # placed while an earlier attempt of the execution was unfinished
    OVER_JOB_LIMIT = "over_job_limit"  # placed while the job was at its max_concurrency
    OVER_QUEUE_LIMIT = "over_queue_limit"  # placed while the queue was at its max_concurrency
    NEVER_ENDED = "never_ended"  # has no end although its execution has moved on
    STUCK = "stuck"  # waits for no reason


class AttemptRow(NamedTuple):
    """An attempt; ids stay text, since they are only compared and there may be millions."""

    execution_id: str
    number: int
    placed_at: datetime
    ended_at: datetime | None
    is_live: bool  # it is the active attempt of its execution
    job_id: str
    job_limit: int | None  # the smaller of its version's limit and the largest limit in force at the placement
    queue_id: str | None  # None: unknown, the execution has changed queues


@dataclass(frozen=True, slots=True)
class Finding:
    what: Violation
    execution_id: str
    at: datetime
    active: int | None = None
    limit: int | None = None

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"what": self.what.value, "at": format_instant(self.at)}


@dataclass(frozen=True, slots=True)
class LimitHistory:
    """The limits of a queue with the times from which they were in force, in order."""

    changes: Sequence[tuple[datetime, int | None]]

    def largest(self, from_: datetime, to: datetime) -> int | None:
        """Return the largest limit in force during a range; None: no limit, or unknown."""
        times = [at for at, _ in self.changes]
        first, last = bisect_right(times, from_) - 1, bisect_right(times, to)
        if first < 0:
            return None
        limits = [limit for _, limit in self.changes[first:last]]
        return None if None in limits else max(limit for limit in limits if limit is not None)


@dataclass(slots=True)
class AttemptChecker:
    """Consumes attempts in order of placement; those placed before `from_` only count as active."""

    from_: datetime
    queue_limits: Mapping[str, LimitHistory]
    tolerance: timedelta  # edits and placements have timestamps of different clocks
    examples: int
    attempts: int = 0
    peak: int = 0
    found: Counter[Violation] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    _ends: list[tuple[datetime, str, str, str | None]] = field(default_factory=list)
    _executions: Counter[str] = field(default_factory=Counter)
    _jobs: Counter[str] = field(default_factory=Counter)
    _queues: Counter[str] = field(default_factory=Counter)

    def take(self, row: AttemptRow) -> None:
        self._drop_ended(row.placed_at)
        is_checked = row.placed_at >= self.from_
        self.attempts += is_checked
        if row.ended_at is None and not row.is_live:
            self.report(Violation.NEVER_ENDED, row.execution_id, row.placed_at)
            return
        heappush(self._ends, (row.ended_at or _NEVER, row.execution_id, row.job_id, row.queue_id))
        self._executions[row.execution_id] += 1
        self._jobs[row.job_id] += 1
        if row.queue_id is not None:
            self._queues[row.queue_id] += 1
        self.peak = max(self.peak, len(self._ends))
        if is_checked:
            self._check_limits(row)

    def report(
        self, what: Violation, execution_id: str, at: datetime, active: int | None = None, limit: int | None = None
    ) -> None:
        self.found[what] += 1
        if len(self.findings) < self.examples:
            self.findings.append(Finding(what, execution_id, at, active, limit))

    def _check_limits(self, row: AttemptRow) -> None:
        if self._executions[row.execution_id] > 1:
            self.report(Violation.OVERLAPPING, row.execution_id, row.placed_at)
        active = self._jobs[row.job_id]
        if row.job_limit is not None and active > row.job_limit:
            self.report(Violation.OVER_JOB_LIMIT, row.execution_id, row.placed_at, active, row.job_limit)
        if row.queue_id is None or row.queue_id not in self.queue_limits:
            return
        limit = self.queue_limits[row.queue_id].largest(row.placed_at - self.tolerance, row.placed_at + self.tolerance)
        active = self._queues[row.queue_id]
        if limit is not None and active > limit:
            self.report(Violation.OVER_QUEUE_LIMIT, row.execution_id, row.placed_at, active, limit)

    def _drop_ended(self, now: datetime) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, execution_id, job_id, queue_id = heappop(self._ends)
            _decrement(self._executions, execution_id)
            _decrement(self._jobs, job_id)
            if queue_id is not None:
                _decrement(self._queues, queue_id)


def _decrement(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
