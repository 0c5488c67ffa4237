"""The status of a job, derived by the query that reads it and therefore never stale."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TypeVar

from django.apps import apps
from django.db.models import Case, CharField, Exists, Model, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from jobs.domain.states import STARTED, TERMINAL, WAITING, State

Row = TypeVar("Row", bound=Model)


class JobStatus(StrEnum):
    PAUSED = "paused"
    CANCELLED = "cancelled"
    RUNNING = "running"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    # Otherwise the outcome of the last execution.
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    MISSED = "missed"
    SKIPPED = "skipped"


def with_status(jobs: QuerySet[Row]) -> QuerySet[Row]:
    """Annotate each job with `status` and `next_instant`."""
    annotated: QuerySet[Row] = jobs.annotate(**_build_annotations())
    return annotated


@cache
def _build_annotations() -> dict[str, Case | Subquery]:
    """Build the expressions once; each query resolves its own copies."""
    executions = apps.get_model("jobs", "Execution").objects.filter(job=OuterRef("pk"))
    unfinished = executions.filter(ended_at__isnull=True)
    upcoming = apps.get_model("jobs", "Schedule").objects.filter(job=OuterRef("pk"), next_instant__isnull=False)
    status = Case(
        When(state="paused", then=Value(JobStatus.PAUSED.value)),
        When(state="cancelled", then=Value(JobStatus.CANCELLED.value)),
        When(Exists(unfinished.filter(state__in=sorted(STARTED))), then=Value(JobStatus.RUNNING.value)),
        When(
            Exists(unfinished.filter(state__in=sorted(WAITING | {State.QUEUED}))),
            then=Value(JobStatus.WAITING.value),
        ),
        When(Exists(upcoming), then=Value(JobStatus.SCHEDULED.value)),
        default=Coalesce(
            Subquery(executions.filter(state__in=sorted(TERMINAL)).order_by("-id").values("state")[:1]),
            # No execution yet and no schedule: it waits for its upstreams.
            Value(JobStatus.WAITING.value),
        ),
        output_field=CharField(),
    )
    return {"status": status, "next_instant": Subquery(upcoming.order_by("next_instant").values("next_instant")[:1])}
