"""/jobs: submit, list, read, edit, cancel, delete, pause, resume and run jobs; list their next instants.

Deleted jobs answer 404 and appear only in the list of deleted jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.conditional import (
    IF_MATCH,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    compute_etag,
    make_if_match_check,
    respond_conditionally,
)
from jobs.api.framework.fields import (
    EmptyInput,
    OneOfField,
    QueryIntegerField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.permissions import get_grantable_secrets
from jobs.api.framework.query_params import PageQuery, build_page_serializer, build_results_serializer
from jobs.api.framework.views import (
    ApiView,
    get_or_404,
    paginate_filtered,
    read_body,
    read_query,
    require_user,
    respond_created,
)
from jobs.api.resources.definitions.job_edit_input import JobEditInput, build_job_edit
from jobs.api.resources.definitions.job_input import JobInput, build_job_spec
from jobs.api.resources.definitions.job_queryset import attach_job_details, select_jobs_with_details
from jobs.api.resources.representations import ExecutionOutput, InstantOutput, JobOutput, SavedJobOutput
from jobs.db.clock import database_now
from jobs.definitions import editing, lifecycle, submission
from jobs.definitions.job_list import ORDERS, JobFilters, list_jobs
from jobs.definitions.job_status import JobStatus
from jobs.domain.recurrence import Kind, PreviewedInstant, preview_instants
from jobs.models import Execution, Job, Schedule
from jobs.models.visibility import require_owner, shared_with
from jobs.scheduling import linting, schedules

if TYPE_CHECKING:
    from jobs.api.resources.definitions.job_queryset import JobWithDetails

# Fields that change without an edit of the job: by firing, by running, by an edit of a calendar.
VOLATILE_FIELDS = ("status", "next_instant", "settled_count", "in_words", "quarantined_at", "quarantine_error")

_FILTER_NAMES = {each.name for each in fields(JobFilters)}


class JobQuery(PageQuery):
    status = OneOfField([s.value for s in JobStatus], required=False, help_text="Filter by status.")
    queue = serializers.CharField(required=False, max_length=63, help_text="Filter by name of the queue.")
    priority = QueryIntegerField(required=False, min_value=0, max_value=9, help_text="Filter by priority.")
    owner = serializers.CharField(
        required=False,
        max_length=150,
        help_text="Filter by owner. Of other users, only jobs shared with you are listed.",
    )
    team = serializers.CharField(required=False, max_length=63, help_text="Filter by name of the team.")
    search = serializers.CharField(
        required=False, max_length=200, help_text="Filter by part of the name, case-insensitive."
    )
    name = serializers.CharField(
        required=False, max_length=200, trim_whitespace=False, help_text="Filter by exact name."
    )
    deleted = serializers.BooleanField(default=False, help_text="List deleted jobs instead of existing ones.")
    ordering = OneOfField(
        list(ORDERS),
        default="-created",
        help_text="Sort order. `next_fire`, which includes jitter, lists only jobs that will fire.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["deleted"] and not attrs["ordering"].endswith("created"):
            raise serializers.ValidationError({"ordering": ["Deleted jobs can be ordered by creation only."]})
        return attrs


InstantResults = build_results_serializer(InstantOutput)


class NextQuery(StrictSerializer):
    count = QueryIntegerField(default=5, min_value=1, max_value=100, help_text="Maximum number of instants.")


def list_visible_jobs(user: User) -> QuerySet[Job]:
    return shared_with(user, select_jobs_with_details().filter(deleted_at__isnull=True))


def find_job(user: User, job_id: UUID) -> Job:
    return get_or_404(shared_with(user, Job.objects.filter(deleted_at__isnull=True)), job_id)


def _represent_saved_job(job: Job, warnings: list[str]) -> dict[str, object]:
    return SavedJobOutput(job, context={"warnings": warnings}).data


def _make_if_match_check(request: Request, job_id: UUID) -> Callable[[], None]:
    rows = list_visible_jobs(require_user(request))
    return make_if_match_check(request, lambda: JobOutput(rows.get(id=job_id)).data, volatile_fields=VOLATILE_FIELDS)


class Jobs(ApiView):
    @extend_schema(
        operation_id="jobs_list", summary="List jobs", parameters=[JobQuery], responses=build_page_serializer(JobOutput)
    )
    def get(self, request: Request) -> Response:
        """Filters may be combined. A short page may still have a `next`."""
        query = read_query(JobQuery, request)
        user, ordering = require_user(request), str(query["ordering"])
        filters = JobFilters(**{name: query[name] for name in query if name in _FILTER_NAMES})  # type: ignore[arg-type]
        rows = select_jobs_with_details().filter(deleted_at__isnull=not filters.deleted)
        return paginate_filtered(rows, list_jobs(user, filters, ordering), ordering, request, JobOutput)

    @extend_schema(
        operation_id="jobs_submit", summary="Submit a job", request=JobInput, responses={201: SavedJobOutput}
    )
    @idempotent()
    def post(self, request: Request) -> Create:
        """Submit a program as a `script` or an uploaded `artifact`, with schedules, dependencies and limits.

        Without schedules and dependencies, the job runs once, now. `warnings` in the response point out surprising
        schedules.
        """
        user = require_user(request)
        specs = [build_job_spec(read_body(JobInput, request))]
        grantable = get_grantable_secrets(request, owner_id=user.pk)
        prepared = submission.prepare_jobs(owner=user, specs=specs, grantable_secrets=grantable)

        def create() -> Response:
            (stored,) = submission.store_jobs(prepared)
            job, warnings = attach_job_details(stored), linting.lint_new_schedules(stored.schedules, prepared.now)
            return respond_created(request, job.id, _represent_saved_job(job, warnings))

        return create


class JobDetail(ApiView):
    @extend_schema(
        operation_id="jobs_read",
        summary="Read a job",
        parameters=[IF_NONE_MATCH],
        responses={200: JobOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """`status` is that of the current execution, else `scheduled`, else that of the last execution."""
        return respond_conditionally(
            request,
            JobOutput(get_or_404(list_visible_jobs(require_user(request)), job_id)).data,
            volatile_fields=VOLATILE_FIELDS,
        )

    @extend_schema(
        operation_id="jobs_edit",
        summary="Edit a job",
        parameters=[IF_MATCH],
        request=JobEditInput,
        responses=SavedJobOutput,
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        """Change the given fields, including those of `requirements` and `retry`, and keep the others.

        `schedules` replaces the whole list: an entry with an `id` changes that schedule, one without is added, and
        schedules missing from the list are deleted. Instants that are already due fire as before the edit.
        """
        edit = build_job_edit(read_body(JobEditInput, request))
        user = require_user(request)
        job = find_job(user, job_id)
        require_owner(user, job)
        grantable = get_grantable_secrets(request, owner_id=job.owner_id)
        editing.edit_job(job_id, edit, grantable_secrets=grantable, precondition=_make_if_match_check(request, job_id))
        job = list_visible_jobs(user).get(id=job_id)
        saved = _represent_saved_job(job, linting.lint_schedules(job, cast("JobWithDetails", job).live_schedules))
        values = {name: value for name, value in saved.items() if name != "warnings"}
        return Response(saved, headers={"ETag": compute_etag(values, volatile_fields=VOLATILE_FIELDS)})

    @extend_schema(
        operation_id="jobs_delete", summary="Delete a job", parameters=[IF_MATCH], request=None, responses={204: None}
    )
    def delete(self, request: Request, job_id: UUID) -> Response:
        """Cancel the job with its executions and delete it. Its executions stay readable."""
        read_body(EmptyInput, request)
        user = require_user(request)
        require_owner(user, find_job(user, job_id))
        lifecycle.delete_job(job_id, by=user.get_username(), precondition=_make_if_match_check(request, job_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class JobCancel(ApiView):
    @extend_schema(
        operation_id="jobs_cancel", summary="Cancel a job", parameters=[IF_MATCH], request=None, responses=JobOutput
    )
    def put(self, request: Request, job_id: UUID) -> Response:
        """Cancel the job for good: no instant fires, waiting executions end, running ones are stopped. Idempotent."""
        read_body(EmptyInput, request)
        user = require_user(request)
        require_owner(user, find_job(user, job_id))
        lifecycle.cancel_job(job_id, by=user.get_username(), precondition=_make_if_match_check(request, job_id))
        return Response(JobOutput(list_visible_jobs(user).get(id=job_id)).data)


class PauseInput(StrictSerializer):
    note = TextField(
        default="", allow_blank=True, max_length=1000, help_text="Reason for the pause, shown with the job."
    )


class JobPause(ApiView):
    @extend_schema(
        operation_id="jobs_pause", summary="Pause a job", parameters=[IF_MATCH], request=PauseInput, responses=JobOutput
    )
    def post(self, request: Request, job_id: UUID) -> Response:
        """Stop firing until the job is resumed; existing executions continue. Pausing again replaces the note."""
        body = read_body(PauseInput, request)
        user = require_user(request)
        find_job(user, job_id)
        lifecycle.pause_job(job_id, note=str(body["note"]), precondition=_make_if_match_check(request, job_id))
        return Response(JobOutput(list_visible_jobs(user).get(id=job_id)).data)


class JobResume(ApiView):
    @extend_schema(
        operation_id="jobs_resume", summary="Resume a job", parameters=[IF_MATCH], request=None, responses=JobOutput
    )
    def post(self, request: Request, job_id: UUID) -> Response:
        """Fire again from now on. Instants of the pause count as dropped. Idempotent."""
        read_body(EmptyInput, request)
        user = require_user(request)
        find_job(user, job_id)
        lifecycle.resume_job(job_id, precondition=_make_if_match_check(request, job_id))
        return Response(JobOutput(list_visible_jobs(user).get(id=job_id)).data)


class ExecuteInput(StrictSerializer):
    worker_id = StrictUUIDField(
        default=None, allow_null=True, help_text="Id of the worker to run on. Default: any suitable worker."
    )


class JobExecute(ApiView):
    @extend_schema(
        operation_id="jobs_execute", summary="Run a job now", request=ExecuteInput, responses={201: ExecutionOutput}
    )
    @idempotent()
    def post(self, request: Request, job_id: UUID) -> Create:
        """Create an execution now, independent of the schedules."""
        worker_id = read_body(ExecuteInput, request)["worker_id"]
        find_job(require_user(request), job_id)

        def create() -> Response:
            execution_id = lifecycle.execute_job(job_id, worker_id=worker_id if isinstance(worker_id, UUID) else None)
            execution = Execution.objects.select_related("job").get(id=execution_id)
            return Response(ExecutionOutput(execution).data, status=status.HTTP_201_CREATED)

        return create


class JobNext(ApiView):
    @extend_schema(
        operation_id="jobs_next",
        summary="List the next instants of a job",
        parameters=[NextQuery],
        responses=InstantResults,
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the next instants of all schedules, in UTC and local time; `note` explains clock changes."""
        query = read_query(NextQuery, request)
        job = find_job(require_user(request), job_id)
        rows = job.schedules.filter(next_instant__isnull=False)
        return Response(list_next_instants(rows, database_now(), int(str(query["count"]))))


def list_next_instants(rows: Iterable[Schedule], now: datetime, count: int) -> dict[str, object]:
    """Merge the next instants of schedules, stored or not."""
    merged = heapq.merge(
        *(_compute_next_instants(schedule, now, count) for schedule in rows), key=lambda instant: instant.at
    )
    results = [
        {"at": instant.at, "local": instant.local.isoformat(), "note": instant.note}
        for instant in islice(merged, count)
    ]
    return {"results": InstantOutput(results, many=True).data}


def _compute_next_instants(schedule: Schedule, now: datetime, count: int) -> list[PreviewedInstant]:
    """Return the known instants: one of a fixed delay, and at most the remaining ones of a limited schedule."""
    if schedule.next_instant is None:
        return []
    if schedule.kind == Kind.DELAY:
        return [
            PreviewedInstant(schedule.next_instant, schedule.next_instant.astimezone(ZoneInfo(schedule.timezone)), None)
        ]
    if schedule.max_count is not None:
        count = min(count, schedule.max_count - schedule.settled_count)
    after = min(now, schedule.next_instant - timedelta(microseconds=1))
    return preview_instants(schedules.recurrence_of(schedule), after, count)
