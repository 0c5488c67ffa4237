"""Jobs with all that is shown of one, in a number of statements that does not grow with the list."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Model, OuterRef, Prefetch, QuerySet
from django.db.models.functions import JSONObject

from jobs.models import Dependency, Job, Queue, Schedule, Team, VersionInput, VersionSecret
from jobs.querysets.job_status import JobStatus, with_status
from jobs.services.submission import StoredJob

if TYPE_CHECKING:

    class ShownJob(Job):
        live_schedules: list[Schedule]
        own_dependencies: list[dict[str, str]]
        given_inputs: list[dict[str, str | None]]
        granted_secrets: list[dict[str, str | None]]


@cache
def shown_jobs() -> QuerySet[Job]:
    """Put together once: what is asked for of them is added to copies of it."""
    dependencies = Dependency.objects.filter(job=OuterRef("pk")).order_by("id")
    inputs = VersionInput.objects.filter(version=OuterRef("current_version"))
    secrets = VersionSecret.objects.filter(version=OuterRef("current_version"))
    return (
        with_status(Job.objects.all())
        # Most jobs have none of these: as subqueries they cost next to nothing, as prefetches a third of a page.
        .annotate(
            own_dependencies=ArraySubquery(
                dependencies.values(it=JSONObject(job="upstream_id", condition="condition"))
            ),
            given_inputs=ArraySubquery(inputs.values(it=JSONObject(path="path", artifact="artifact_id"))),
            granted_secrets=ArraySubquery(secrets.values(it=JSONObject(name="name", env="env", file="path"))),
        )
        .select_related("owner", "team", "current_version", "current_version__queue")
        .defer(
            *_all_but("username", User, "owner"),
            *_all_but("name", Team, "team"),
            *_all_but("name", Queue, "current_version__queue"),
        )
        # Into a list: else Django would make a query for each job, and then not ask it. In an order: a schedule that
        # fires changes its place in the table, which is no edit of its job.
        .prefetch_related(Prefetch("schedules", Schedule.objects.order_by("id"), to_attr="live_schedules"))
    )


def as_if_read(stored: StoredJob) -> Job:
    """What was stored just now: the database would only say the same again."""
    job = stored.job
    first = min((each.next_instant for each in stored.schedules if each.next_instant is not None), default=None)
    said: dict[str, object] = {
        "status": (JobStatus.WAITING if first is None else JobStatus.SCHEDULED).value,
        "next_instant": first,
        "live_schedules": stored.schedules,
        "own_dependencies": [
            {"job": str(each.upstream_id), "condition": str(each.condition)} for each in stored.dependencies
        ],
        "given_inputs": [{"path": each.path, "artifact": str(each.artifact_id)} for each in stored.inputs],
        "granted_secrets": [{"name": each.name, "env": each.env, "file": each.path} for each in stored.secrets],
    }
    for name, value in said.items():
        setattr(job, name, value)
    return job


def _all_but(name: str, model: type[Model], path: str) -> list[str]:
    columns = model._meta.concrete_fields
    return [f"{path}__{each.name}" for each in columns if each.name != name and not each.primary_key]
