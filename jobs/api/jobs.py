"""/jobs: submit, list, read, edit, delete, cancel, execute, and when they run next.

A job that was deleted is not there, except in the list of the deleted ones.
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

from jobs.api.conditional import IF_MATCH, IF_NONE_MATCH, NOT_MODIFIED, show, tag_of, unless_edited
from jobs.api.fields import IdField, NumeralField, OneOfField, StrictSerializer, TextField
from jobs.api.job_edit_input import JobEditInput, job_edit
from jobs.api.job_input import JobInput, job_spec
from jobs.api.queries import PageQuery, page_of, results_of
from jobs.api.repeating import Create, repeatable
from jobs.api.representations import ExecutionOutput, InstantOutput, JobOutput, SavedJobOutput
from jobs.api.shown_jobs import as_if_read, shown_jobs
from jobs.api.views import ApiView, find, read_body, read_query, user_of, walked_page
from jobs.errors import OwnersOnly
from jobs.models import Execution, Job, Schedule
from jobs.querysets.job_status import JobStatus
from jobs.querysets.visibility import shared_with
from jobs.recurrence import Instant, Kind, preview
from jobs.services import commands, editing, linting, schedules, submission
from jobs.services.job_lists import ORDERS, JobFilters, list_jobs

if TYPE_CHECKING:
    from jobs.api.shown_jobs import ShownJob

# What of a job changes without anybody's edit: as it fires, as it runs, as a calendar that it uses is edited.
MOVING = ("status", "next_instant", "settled_count", "in_words", "quarantined_at", "quarantine_error")

_FILTERS = {each.name for each in fields(JobFilters)}


class JobQuery(PageQuery):
    status = OneOfField([s.value for s in JobStatus], required=False, help_text="Those that stand so.")
    queue = serializers.CharField(required=False, max_length=63, help_text="The name of their queue.")
    priority = NumeralField(required=False, min_value=0, max_value=9, help_text="Exactly this one.")
    owner = serializers.CharField(
        required=False, max_length=150, help_text="A user's name; of others, what they share with you."
    )
    team = serializers.CharField(required=False, max_length=63, help_text="Shared with this team.")
    search = serializers.CharField(required=False, max_length=200, help_text="Part of the name, in any case.")
    name = serializers.CharField(required=False, max_length=200, trim_whitespace=False, help_text="The whole name.")
    deleted = serializers.BooleanField(default=False, help_text="Those that were deleted, instead of the others.")
    ordering = OneOfField(
        list(ORDERS), default="-created", help_text="By `next_fire` only those that fire again; jitter counts."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["deleted"] and not attrs["ordering"].endswith("created"):
            raise serializers.ValidationError({"ordering": ["Deleted jobs are ordered by creation only."]})
        return attrs


InstantResults = results_of(InstantOutput)


class NextQuery(StrictSerializer):
    count = NumeralField(default=5, min_value=1, max_value=100, help_text="At most so many.")


class NoInput(StrictSerializer):
    """A request that takes no fields."""


def jobs_of(user: User) -> QuerySet[Job]:
    return shared_with(user, shown_jobs().filter(deleted_at__isnull=True))


def find_job(user: User, job_id: UUID) -> Job:
    return find(shared_with(user, Job.objects.filter(deleted_at__isnull=True)), job_id)


def check_owner(user: User, job: Job) -> None:
    """For what a team may not do: whoever changes what runs could read the secrets that its owner has given it."""
    if not user.is_staff and job.owner_id != user.pk:
        raise OwnersOnly


def _saved(job: Job, warnings: list[str]) -> dict[str, object]:
    return SavedJobOutput(job, context={"warnings": warnings}).data


def _unless_edited(request: Request, job_id: UUID) -> Callable[[], None]:
    rows = jobs_of(user_of(request))
    return unless_edited(request, lambda: JobOutput(rows.get(id=job_id)).data, moving=MOVING)


class Jobs(ApiView):
    @extend_schema(operation_id="jobs_list", summary="List jobs", parameters=[JobQuery], responses=page_of(JobOutput))
    def get(self, request: Request) -> Response:
        """`status` and the other filters may be combined. A page that is short may still have a `next`."""
        query = read_query(JobQuery, request)
        user, ordering = user_of(request), str(query["ordering"])
        filters = JobFilters(**{name: query[name] for name in query if name in _FILTERS})  # type: ignore[arg-type]
        rows = shown_jobs().filter(deleted_at__isnull=not filters.deleted)
        return walked_page(rows, list_jobs(user, filters, ordering), ordering, request, JobOutput)

    @extend_schema(
        operation_id="jobs_submit", summary="Submit a job", request=JobInput, responses={201: SavedJobOutput}
    )
    @repeatable()
    def post(self, request: Request) -> Create:
        """The program is a `script` or an uploaded `artifact`; with neither schedule nor dependency it runs once, now.

        `warnings` name what about its schedules may surprise.
        """
        user = user_of(request)
        prepared = submission.prepare_jobs(owner=user, specs=[job_spec(read_body(JobInput, request))])

        def create() -> Response:
            (stored,) = submission.store_jobs(prepared)
            job, warnings = as_if_read(stored), linting.lint_new(stored.schedules, prepared.now)
            return Response(
                _saved(job, warnings),
                status=status.HTTP_201_CREATED,
                headers={"Location": f"{request.path}/{job.id}"},
            )

        return create


class JobDetail(ApiView):
    @extend_schema(
        operation_id="jobs_read",
        summary="Read a job",
        parameters=[IF_NONE_MATCH],
        responses={200: JobOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """`status`: what it is doing, else whether an instant is to come, else how its last execution ended."""
        return show(request, JobOutput(find(jobs_of(user_of(request)), job_id)).data, moving=MOVING)

    @extend_schema(
        operation_id="jobs_edit",
        summary="Edit a job",
        parameters=[IF_MATCH],
        request=JobEditInput,
        responses=SavedJobOutput,
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        """Changes what is given and leaves the rest; of `requirements` and `retry` likewise.

        `schedules` is the whole list: an entry with an `id` keeps that schedule, changed where it says so, one without
        is new, and a schedule that is not in the list is deleted. What is due by then fires as it was before.
        """
        edit = job_edit(read_body(JobEditInput, request))
        user = user_of(request)
        check_owner(user, find_job(user, job_id))
        editing.edit_job(job_id, edit, when_locked=_unless_edited(request, job_id))
        job = jobs_of(user).get(id=job_id)
        saved = _saved(job, linting.lint_schedules(job, cast("ShownJob", job).live_schedules))
        shown = {name: value for name, value in saved.items() if name != "warnings"}
        return Response(saved, headers={"ETag": tag_of(shown, moving=MOVING)})

    @extend_schema(
        operation_id="jobs_delete", summary="Delete a job", parameters=[IF_MATCH], request=None, responses={204: None}
    )
    def delete(self, request: Request, job_id: UUID) -> Response:
        """Cancels the job and what it runs; its executions stay readable. Once deleted it is not found."""
        read_body(NoInput, request)
        user = user_of(request)
        check_owner(user, find_job(user, job_id))
        commands.delete_job(job_id, by=user.get_username(), when_locked=_unless_edited(request, job_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class JobCancel(ApiView):
    @extend_schema(
        operation_id="jobs_cancel", summary="Cancel a job", parameters=[IF_MATCH], request=None, responses=JobOutput
    )
    def put(self, request: Request, job_id: UUID) -> Response:
        """No instant of it fires any more, what waits ends, what runs is stopped; doing it again changes nothing."""
        read_body(NoInput, request)
        user = user_of(request)
        check_owner(user, find_job(user, job_id))
        commands.cancel_job(job_id, by=user.get_username(), when_locked=_unless_edited(request, job_id))
        return Response(JobOutput(jobs_of(user).get(id=job_id)).data)


class PauseInput(StrictSerializer):
    note = TextField(default="", allow_blank=True, max_length=1000, help_text="Why, for whoever finds it paused.")


class JobPause(ApiView):
    @extend_schema(
        operation_id="jobs_pause", summary="Pause a job", parameters=[IF_MATCH], request=PauseInput, responses=JobOutput
    )
    def post(self, request: Request, job_id: UUID) -> Response:
        """Its schedules do not fire until it is resumed; what was fired before runs on. Again: the note changes."""
        body = read_body(PauseInput, request)
        user = user_of(request)
        find_job(user, job_id)
        commands.pause_job(job_id, note=str(body["note"]), when_locked=_unless_edited(request, job_id))
        return Response(JobOutput(jobs_of(user).get(id=job_id)).data)


class JobResume(ApiView):
    @extend_schema(
        operation_id="jobs_resume", summary="Resume a job", parameters=[IF_MATCH], request=None, responses=JobOutput
    )
    def post(self, request: Request, job_id: UUID) -> Response:
        """Its schedules fire again from now on; the instants of the pause are counted as dropped. Twice is once."""
        read_body(NoInput, request)
        user = user_of(request)
        find_job(user, job_id)
        commands.resume_job(job_id, when_locked=_unless_edited(request, job_id))
        return Response(JobOutput(jobs_of(user).get(id=job_id)).data)


class ExecuteInput(StrictSerializer):
    worker_id = IdField(
        default=None, allow_null=True, help_text="The only worker that it may run on. Default: any that fits."
    )


class JobExecute(ApiView):
    @extend_schema(
        operation_id="jobs_execute", summary="Run a job now", request=ExecuteInput, responses={201: ExecutionOutput}
    )
    @repeatable()
    def post(self, request: Request, job_id: UUID) -> Create:
        """A new execution now, whatever the schedules say."""
        worker_id = read_body(ExecuteInput, request)["worker_id"]
        find_job(user_of(request), job_id)

        def create() -> Response:
            execution_id = commands.execute_job(job_id, worker_id=worker_id if isinstance(worker_id, UUID) else None)
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
        """Of all its schedules together, in UTC and in the time of the schedule; `note` explains a change of clocks."""
        query = read_query(NextQuery, request)
        job = find_job(user_of(request), job_id)
        rows = job.schedules.filter(next_instant__isnull=False)
        return Response(coming_instants(rows, schedules.database_now(), int(str(query["count"]))))


def coming_instants(rows: Iterable[Schedule], now: datetime, count: int) -> dict[str, object]:
    """Of all of them together, also of those that are not stored."""
    coming = heapq.merge(*(_coming(schedule, now, count) for schedule in rows), key=lambda instant: instant.at)
    results = [
        {"at": instant.at, "local": instant.local.isoformat(), "note": instant.note}
        for instant in islice(coming, count)
    ]
    return {"results": InstantOutput(results, many=True).data}


def _coming(schedule: Schedule, now: datetime, count: int) -> list[Instant]:
    """Of a fixed delay only the next one is known, and of a limited schedule only as many as are left."""
    if schedule.next_instant is None:
        return []
    if schedule.kind == Kind.DELAY:
        return [Instant(schedule.next_instant, schedule.next_instant.astimezone(ZoneInfo(schedule.timezone)), None)]
    if schedule.max_count is not None:
        count = min(count, schedule.max_count - schedule.settled_count)
    after = min(now, schedule.next_instant - timedelta(microseconds=1))
    return preview(schedules.recurrence_of(schedule), after, count)
