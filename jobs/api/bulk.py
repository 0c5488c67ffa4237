"""POST /jobs/bulk: up to a thousand jobs in one request and one transaction, all of them or none."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.fields import StrictSerializer
from jobs.api.job_input import JobInput, job_spec
from jobs.api.queries import results_of
from jobs.api.repeating import Create, repeatable
from jobs.api.views import ApiView, read_body, user_of
from jobs.services import submission
from jobs.services.job_spec import JobSpec


class JobsInput(StrictSerializer):
    jobs = JobInput(many=True, allow_empty=False, max_length=conf.MAX_BULK_JOBS)  # type: ignore[call-arg]  # of the list


class SubmittedOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()


class JobsBulk(ApiView):
    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        with _uncollected():
            return super().dispatch(request, *args, **kwargs)

    @extend_schema(
        operation_id="jobs_submit_bulk",
        summary="Submit many jobs at once",
        request=JobsInput,
        responses={201: results_of(SubmittedOutput)},
    )
    @repeatable()
    def post(self, request: Request) -> Create:
        """All of them or none; answered in their order. Fields are named by their place: `jobs.17.schedules.0.cron`.

        `dependencies` are ids of jobs that are there already, not of others in the same request.
        """
        user = user_of(request)
        bodies = cast("Sequence[Mapping[str, Any]]", read_body(JobsInput, request)["jobs"])
        specs = [_spec(index, body) for index, body in enumerate(bodies)]
        prepared = submission.prepare_jobs(owner=user, specs=specs, where=_place)

        def create() -> Response:
            results = [{"id": str(each.job.id), "name": each.job.name} for each in submission.store_jobs(prepared)]
            return Response({"results": results}, status=status.HTTP_201_CREATED)

        return create


@contextmanager
def _uncollected() -> Iterator[None]:
    """A thousand jobs are a hundred thousand objects and no garbage: looking for some took a seventh of the time.

    Two that overlap end it for each other: one of them is then looked through.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _place(index: int) -> str:
    return f"jobs.{index}."


def _spec(index: int, body: Mapping[str, Any]) -> JobSpec:
    with submission.naming(_place(index)):
        return job_spec(body)
