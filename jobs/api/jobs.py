"""/jobs: submit, list, read, cancel, execute, and when they run next."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import StrictSerializer, TextField
from jobs.api.job_input import JobInput, job_spec
from jobs.api.queries import PageQuery, page_of, results_of
from jobs.api.representations import ExecutionOutput, InstantOutput, JobOutput, SubmittedJobOutput
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.models import Execution, Job, Schedule
from jobs.querysets.job_status import JobStatus, with_status
from jobs.querysets.visibility import visible_to
from jobs.recurrence import Instant, Kind, preview
from jobs.services import commands, linting, schedules


class JobQuery(PageQuery):
    status = serializers.ChoiceField([s.value for s in JobStatus], required=False)
    queue = serializers.CharField(required=False, max_length=63)
    priority = serializers.IntegerField(required=False, min_value=0, max_value=9)
    search = serializers.CharField(required=False, max_length=200, help_text="Part of the name, in any case.")


class NextQuery(StrictSerializer):
    count = serializers.IntegerField(default=5, min_value=1, max_value=100)


class NoInput(StrictSerializer):
    """A request that takes no fields."""


def jobs_of(user: User) -> QuerySet[Job]:
    """All that a representation shows, in a number of queries that does not grow with the list."""
    return with_status(
        visible_to(user, Job.objects.all())
        .select_related("owner", "current_version", "current_version__queue")
        .prefetch_related("schedules", "dependencies")
    )


class Jobs(ApiView):
    @extend_schema(operation_id="jobs_list", parameters=[JobQuery], responses=page_of(JobOutput))
    def get(self, request: Request) -> Response:
        query = read_query(JobQuery, request)
        rows = jobs_of(user_of(request))
        columns = {
            "status": "status",
            "queue": "current_version__queue__name",
            "priority": "current_version__priority",
            "search": "name__icontains",
        }
        wanted = {column: query[name] for name, column in columns.items() if name in query}
        return page(rows.filter(**wanted), request, JobOutput)

    @extend_schema(operation_id="jobs_submit", request=JobInput, responses={201: SubmittedJobOutput})
    def post(self, request: Request) -> Response:
        user = user_of(request)
        job = commands.submit_job(owner=user, spec=job_spec(read_body(JobInput, request)))
        return Response(
            SubmittedJobOutput(jobs_of(user).get(id=job.id), context={"warnings": linting.lint_schedules(job.id)}).data,
            status=status.HTTP_201_CREATED,
            headers={"Location": f"{request.path}/{job.id}"},
        )


class JobDetail(ApiView):
    @extend_schema(operation_id="jobs_read", responses=JobOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        return Response(JobOutput(find(jobs_of(user_of(request)), job_id)).data)


class JobCancel(ApiView):
    @extend_schema(operation_id="jobs_cancel", request=None, responses=JobOutput)
    def put(self, request: Request, job_id: UUID) -> Response:
        read_body(NoInput, request)
        user = user_of(request)
        find(visible_to(user, Job.objects.all()), job_id)
        commands.cancel_job(job_id, by=user.get_username())
        return Response(JobOutput(jobs_of(user).get(id=job_id)).data)


class PauseInput(StrictSerializer):
    note = TextField(default="", allow_blank=True, max_length=1000, help_text="Why, for whoever finds it paused.")


class JobPause(ApiView):
    @extend_schema(operation_id="jobs_pause", request=PauseInput, responses=JobOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        body = read_body(PauseInput, request)
        user = user_of(request)
        find(visible_to(user, Job.objects.all()), job_id)
        commands.pause_job(job_id, note=str(body["note"]))
        return Response(JobOutput(jobs_of(user).get(id=job_id)).data)


class JobResume(ApiView):
    @extend_schema(operation_id="jobs_resume", request=None, responses=JobOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        read_body(NoInput, request)
        user = user_of(request)
        find(visible_to(user, Job.objects.all()), job_id)
        commands.resume_job(job_id)
        return Response(JobOutput(jobs_of(user).get(id=job_id)).data)


class JobExecute(ApiView):
    @extend_schema(operation_id="jobs_execute", request=None, responses={201: ExecutionOutput})
    def post(self, request: Request, job_id: UUID) -> Response:
        read_body(NoInput, request)
        find(visible_to(user_of(request), Job.objects.all()), job_id)
        execution_id = commands.execute_job(job_id)
        execution = Execution.objects.select_related("job").get(id=execution_id)
        return Response(ExecutionOutput(execution).data, status=status.HTTP_201_CREATED)


class JobNext(ApiView):
    @extend_schema(operation_id="jobs_next", parameters=[NextQuery], responses=results_of(InstantOutput))
    def get(self, request: Request, job_id: UUID) -> Response:
        query = read_query(NextQuery, request)
        job = find(visible_to(user_of(request), Job.objects.all()), job_id)
        now = schedules.database_now()
        count = int(str(query["count"]))
        coming = heapq.merge(
            *(_coming(schedule, now, count) for schedule in job.schedules.filter(next_instant__isnull=False)),
            key=lambda instant: instant.at,
        )
        results = [
            {"at": instant.at, "local": instant.local.isoformat(), "note": instant.note}
            for instant in islice(coming, count)
        ]
        return Response({"results": InstantOutput(results, many=True).data})


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
