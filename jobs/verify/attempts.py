"""Audit of attempts: limits held, no execution ran twice at once, and nothing waits without a reason.

Read-only. Attempts come through a cursor in one snapshot, so that memory does not grow with the range.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Q

from jobs.db import sql
from jobs.db.clock import database_now, read_pruned_before
from jobs.domain.errors import InvalidInput
from jobs.models import AuditEntry, Queue
from jobs.models.ids import MAX_CLOCK_SKEW, shifted_first_id
from jobs.verify.attempt_check import AttemptChecker, AttemptRow, Finding, LimitHistory, Violation
from jobs.verify.firings import AuditTimedOut, read_snapshot, skip_pruned
from jobs.verify.report import Audit
from jobs.verify.stuck import find_stuck

TOLERANCE = timedelta(seconds=10)
MAX_EXAMPLES = 20
PAGE_ATTEMPTS = 5000
STATEMENT_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AttemptAudit(Audit[Finding]):
    PROBLEMS = (*Violation, "waiting_unchecked")

    attempts: int
    peak: int  # attempts active at the same time
    overlapping: int
    over_job_limit: int
    over_queue_limit: int
    never_ended: int
    waiting_checked: int
    waiting_unchecked: int  # the deadline came first
    stuck: int


def audit_attempts(
    from_: datetime,
    to: datetime,
    *,
    owner_id: int | None = None,
    job_id: UUID | None = None,
    examples: int = MAX_EXAMPLES,
    within_seconds: float | None = None,
) -> AttemptAudit:
    """Check every attempt placed from `from_` to `to`, and every waiting execution; of one owner or job, or of all."""
    if from_ > to:
        raise InvalidInput("from", "The range to audit ends before it begins; swap its ends.")
    deadline = None if within_seconds is None else time.monotonic() + within_seconds
    with read_snapshot(statement_seconds=min(within_seconds or STATEMENT_TIMEOUT_SECONDS, STATEMENT_TIMEOUT_SECONDS)):
        pruned_before = read_pruned_before()
        from_ = skip_pruned(from_, pruned_before, to)
        checker = AttemptChecker(from_, _read_queue_limits(from_), TOLERANCE, examples)
        for row in _read_attempts(from_, to, owner_id, job_id):
            checker.take(row)
            if deadline is not None and time.monotonic() > deadline:
                raise AuditTimedOut("audit_attempts")
    waiting = find_stuck(owner_id=owner_id, job_id=job_id, deadline=deadline)
    for execution_id in waiting.stuck:
        checker.report(Violation.STUCK, str(execution_id), database_now())
    return AttemptAudit(
        from_=from_,
        to=to,
        pruned_before=pruned_before,
        attempts=checker.attempts,
        peak=checker.peak,
        waiting_checked=waiting.checked,
        waiting_unchecked=waiting.unchecked,
        differences=tuple(checker.findings),
        **{violation.value: checker.found[violation] for violation in Violation},
    )


def _read_attempts(from_: datetime, to: datetime, owner_id: int | None, job_id: UUID | None) -> Iterator[AttemptRow]:
    parameters = {
        "from": from_,
        "to": to,
        "first": shifted_first_id(from_, -MAX_CLOCK_SKEW),
        "last": shifted_first_id(to, MAX_CLOCK_SKEW),
        "tolerance": TOLERANCE,
        "owner_id": owner_id,
        "job_id": job_id,
    }
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql.statement("audit_attempts"), parameters)  # type: ignore[arg-type]
        while page := cursor.fetchmany(PAGE_ATTEMPTS):
            yield from map(AttemptRow._make, page)


def _read_queue_limits(from_: datetime) -> dict[str, LimitHistory]:
    """Reconstruct the limits of the range from the current ones, backwards through the audit log.

    The time before a change whose entry lacks the previous limit is unknown.
    """
    histories: dict[str, list[tuple[datetime, int | None]]] = {}
    limits: dict[str, int | None] = {}
    for queue in Queue.objects.only("id", "max_concurrency"):
        limits[str(queue.id)] = queue.max_concurrency
        histories[str(queue.id)] = []
    entries = AuditEntry.objects.filter(object_type="queue", id__gte=shifted_first_id(from_, -MAX_CLOCK_SKEW))
    changed = entries.filter(Q(before__has_key="max_concurrency") | Q(after__has_key="max_concurrency"))
    for queue_id, at, before in changed.order_by("-id").values_list("object_id", "at", "before"):
        if queue_id in histories and "max_concurrency" in before:
            histories[queue_id].append((at, limits[queue_id]))
            limits[queue_id] = before["max_concurrency"]
    return {
        queue_id: LimitHistory([(from_ - 2 * TOLERANCE, limits[queue_id]), *reversed(changes)])
        for queue_id, changes in histories.items()
    }
