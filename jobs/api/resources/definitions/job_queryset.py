"""Loads jobs with all details of a representation, in a constant number of queries."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Model, OuterRef, Prefetch, QuerySet
from django.db.models.functions import JSONObject

from jobs.definitions.job_status import JobStatus, with_status
from jobs.definitions.submission import StoredJob
from jobs.models import Dependency, Job, Queue, Schedule, Team, VersionInput, VersionSecret

if TYPE_CHECKING:

    class JobWithDetails(Job):
        live_schedules: list[Schedule]
        dependency_values: list[dict[str, str]]
        input_values: list[dict[str, str | None]]
        secret_values: list[dict[str, str | None]]


@cache
def select_jobs_with_details() -> QuerySet[Job]:
    """Build the queryset once; callers filter copies of it."""
    dependencies = Dependency.objects.filter(job=OuterRef("pk")).order_by("id")
    inputs = VersionInput.objects.filter(version=OuterRef("current_version"))
    secrets = VersionSecret.objects.filter(version=OuterRef("current_version"))
    return (
        with_status(Job.objects.all())
        # Most jobs have none of these: subqueries cost next to nothing then, prefetches a third of a page.
        .annotate(
            dependency_values=ArraySubquery(
                dependencies.values(it=JSONObject(job="upstream_id", condition="condition"))
            ),
            input_values=ArraySubquery(inputs.values(it=JSONObject(path="path", artifact="artifact_id"))),
            secret_values=ArraySubquery(secrets.values(it=JSONObject(name="name", env="env", file="path"))),
        )
        .select_related("owner", "team", "current_version", "current_version__queue")
        .defer(
            *_list_other_fields("username", User, "owner"),
            *_list_other_fields("name", Team, "team"),
            *_list_other_fields("name", Queue, "current_version__queue"),
        )
        # `to_attr` avoids building an unused queryset per job. Ordered, because a firing moves a schedule's row in the
        # table, which must not change the job's ETag.
        .prefetch_related(Prefetch("schedules", Schedule.objects.order_by("id"), to_attr="live_schedules"))
    )


def attach_job_details(stored: StoredJob) -> Job:
    """Attach the details of a job that was just stored, without reading them back."""
    job = stored.job
    first = min((each.next_instant for each in stored.schedules if each.next_instant is not None), default=None)
    details: dict[str, object] = {
        "status": (JobStatus.WAITING if first is None else JobStatus.SCHEDULED).value,
        "next_instant": first,
        "live_schedules": stored.schedules,
        "dependency_values": [
            {"job": str(each.upstream_id), "condition": str(each.condition)} for each in stored.dependencies
        ],
        "input_values": [{"path": each.path, "artifact": str(each.artifact_id)} for each in stored.inputs],
        "secret_values": [{"name": each.name, "env": each.env, "file": each.path} for each in stored.secrets],
    }
    for name, value in details.items():
        setattr(job, name, value)
    return job


def _list_other_fields(name: str, model: type[Model], path: str) -> list[str]:
    columns = model._meta.concrete_fields
    return [f"{path}__{each.name}" for each in columns if each.name != name and not each.primary_key]
