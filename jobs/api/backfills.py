"""/jobs/{id}/backfill and /backfills: ask for a past range, watch it, cancel it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import InstantField, StrictSerializer
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.repeating import Create, repeatable
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.models import Backfill, BackfillState, Job
from jobs.querysets.visibility import shared_with
from jobs.services import backfilling

Fields = dict[str, serializers.Field[Any, Any, Any, Any]]


class BackfillInput(StrictSerializer):
    """Both ends are included."""

    def get_fields(self) -> Fields:
        # A field of this name cannot be declared: it is a word of the language.
        return {"from": InstantField(), "to": InstantField(help_text="Not in the future.")}


class BackfillOutput(serializers.ModelSerializer[Backfill]):
    job_id = serializers.UUIDField()
    status = serializers.ChoiceField(BackfillState.values, source="state")

    class Meta:
        model = Backfill
        fields = [
            "id", "job_id", "status", "requested_by", "cursor", "created_count", "expected_count", "created_at",
            "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_fields(self) -> Fields:
        fields: Fields = super().get_fields()
        return fields | {
            "from": serializers.DateTimeField(source="from_at"),
            "to": serializers.DateTimeField(source="to_at"),
        }


def backfills_of(user: User) -> QuerySet[Backfill]:
    return shared_with(user, Backfill.objects.all(), job="job")


class JobBackfill(ApiView):
    @extend_schema(
        operation_id="jobs_backfill",
        summary="Backfill a past range",
        request=BackfillInput,
        responses={202: BackfillOutput},
    )
    @repeatable()
    def post(self, request: Request, job_id: UUID) -> Create:
        """Runs the instants of a past range; one that has an execution, whatever became of it, gets no second one.

        They are created as fast as the job runs them: a backfill never floods the queue.
        """
        body = read_body(BackfillInput, request)
        user = user_of(request)
        find(shared_with(user, Job.objects.all()), job_id)

        def create() -> Response:
            backfill = backfilling.request_backfill(
                job_id,
                from_at=cast("datetime", body["from"]),
                to_at=cast("datetime", body["to"]),
                by=user.get_username(),
            )
            return Response(BackfillOutput(backfill).data, status=status.HTTP_202_ACCEPTED)

        return create


class JobBackfills(ApiView):
    @extend_schema(
        operation_id="jobs_backfills",
        summary="List the backfills of a job",
        parameters=[PageQuery],
        responses=page_of(BackfillOutput),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        read_query(PageQuery, request)
        user = user_of(request)
        find(shared_with(user, Job.objects.all()), job_id)
        return page(backfills_of(user).filter(job_id=job_id), request, BackfillOutput)


class BackfillCancel(ApiView):
    @extend_schema(operation_id="backfills_cancel", summary="Cancel a backfill", request=None, responses=BackfillOutput)
    def put(self, request: Request, backfill_id: UUID) -> Response:
        """Creates no more executions; those that it has created run on. Doing it again changes nothing."""
        read_body(NoInput, request)
        backfill = find(backfills_of(user_of(request)), backfill_id)
        backfilling.cancel_backfill(backfill_id)
        backfill.refresh_from_db()
        return Response(BackfillOutput(backfill).data)
