"""POST /jobs/bulk: submit up to a thousand jobs in one transaction, all or none."""

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

from jobs.api.framework.fields import StrictSerializer
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.permissions import get_grantable_secrets
from jobs.api.framework.query_params import build_results_serializer
from jobs.api.framework.views import ApiView, read_body, require_user
from jobs.api.resources.definitions.job_input import JobInput, build_job_spec
from jobs.definitions import submission
from jobs.domain import limits
from jobs.domain.job_spec import JobSpec


class JobsInput(StrictSerializer):
    jobs = JobInput(many=True, allow_empty=False, max_length=limits.MAX_BULK_JOBS)  # type: ignore[call-arg]  # of the list


class SubmittedOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()


class JobsBulk(ApiView):
    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        with _pause_gc():
            return super().dispatch(request, *args, **kwargs)

    @extend_schema(
        operation_id="jobs_submit_bulk",
        summary="Submit many jobs at once",
        request=JobsInput,
        responses={201: build_results_serializer(SubmittedOutput)},
    )
    @idempotent()
    def post(self, request: Request) -> Create:
        """Submit all jobs or none; results keep the order. Errors name fields by path: `jobs.17.schedules.0.cron`.

        `dependencies` must name existing jobs, not others of the same request.
        """
        user = require_user(request)
        bodies = cast("Sequence[Mapping[str, Any]]", read_body(JobsInput, request)["jobs"])
        specs = [_build_spec(index, body) for index, body in enumerate(bodies)]
        grantable = get_grantable_secrets(request, owner_id=user.pk)
        prepared = submission.prepare_jobs(
            owner=user, specs=specs, grantable_secrets=grantable, field_prefix=_format_field_prefix
        )

        def create() -> Response:
            results = [{"id": str(each.job.id), "name": each.job.name} for each in submission.store_jobs(prepared)]
            return Response({"results": results}, status=status.HTTP_201_CREATED)

        return create


@contextmanager
def _pause_gc() -> Iterator[None]:
    """Pause garbage collection: a thousand jobs are a hundred thousand live objects, and scanning them took 14 %.

    Of two overlapping requests, the first to finish resumes collection for both, which only costs time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _format_field_prefix(index: int) -> str:
    return f"jobs.{index}."


def _build_spec(index: int, body: Mapping[str, Any]) -> JobSpec:
    with submission.prefix_errors(_format_field_prefix(index)):
        return build_job_spec(body)
