"""/jobs: submit, list, read, cancel, execute, and when they run next."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import StrictSerializer
from jobs.api.job_input import JobInput, job_spec
from jobs.api.queries import PageQuery, page_of, results_of
from jobs.api.representations import ExecutionOutput, InstantOutput, JobOutput
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.models import Execution, Job, Schedule
from jobs.querysets.job_status import JobStatus, with_status
from jobs.querysets.visibility import visible_to
from jobs.recurrence import Kind, Recurrence
from jobs.services import commands


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

    @extend_schema(operation_id="jobs_submit", request=JobInput, responses={201: JobOutput})
    def post(self, request: Request) -> Response:
        user = user_of(request)
        job = commands.submit_job(owner=user, spec=job_spec(read_body(JobInput, request)))
        return Response(
            JobOutput(jobs_of(user).get(id=job.id)).data,
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
        coming = heapq.merge(*(_instants(schedule) for schedule in job.schedules.all()))
        results = [
            {"at": at, "local": at.astimezone(ZoneInfo(zone)).isoformat(), "note": None}
            for at, zone in islice(coming, int(str(query["count"])))
        ]
        return Response({"results": InstantOutput(results, many=True).data})


def _instants(schedule: Schedule) -> Iterator[tuple[datetime, str]]:
    recurrence = Recurrence(
        Kind(schedule.kind), schedule.expression, schedule.timezone, schedule.starts_at, schedule.ends_at
    )
    instant = schedule.next_instant
    while instant is not None:
        yield instant, schedule.timezone
        instant = recurrence.next_after(instant)
