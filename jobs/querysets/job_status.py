"""The status of a job, derived from its executions and schedules in the query that reads it: it is never stale."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TypeVar

from django.apps import apps
from django.db.models import Case, CharField, Exists, Model, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from jobs.states import STARTED, TERMINAL, WAITING, State

Row = TypeVar("Row", bound=Model)


class JobStatus(StrEnum):
    PAUSED = "paused"
    CANCELLED = "cancelled"
    RUNNING = "running"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    # None of these: how its last execution ended.
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    MISSED = "missed"
    SKIPPED = "skipped"


def with_status(jobs: QuerySet[Row]) -> QuerySet[Row]:
    """Adds `status` and `next_instant` to each job."""
    annotated: QuerySet[Row] = jobs.annotate(**_annotations())
    return annotated


@cache
def _annotations() -> dict[str, Case | Subquery]:
    """Put together once: each query resolves copies of its own."""
    executions = apps.get_model("jobs", "Execution").objects.filter(job=OuterRef("pk"))
    to_come = apps.get_model("jobs", "Schedule").objects.filter(job=OuterRef("pk"), next_instant__isnull=False)
    status = Case(
        When(state="paused", then=Value(JobStatus.PAUSED.value)),
        When(state="cancelled", then=Value(JobStatus.CANCELLED.value)),
        When(Exists(executions.filter(state__in=sorted(STARTED))), then=Value(JobStatus.RUNNING.value)),
        When(
            Exists(executions.filter(state__in=sorted(WAITING | {State.QUEUED}))),
            then=Value(JobStatus.WAITING.value),
        ),
        When(Exists(to_come), then=Value(JobStatus.SCHEDULED.value)),
        default=Coalesce(
            Subquery(executions.filter(state__in=sorted(TERMINAL)).order_by("-id").values("state")[:1]),
            # Never fired and nothing to come by itself: it waits for its upstreams.
            Value(JobStatus.WAITING.value),
        ),
        output_field=CharField(),
    )
    return {"status": status, "next_instant": Subquery(to_come.order_by("next_instant").values("next_instant")[:1])}
