"""/jobs/{id}/backfill and /backfills: request, list and cancel backfills."""

from __future__ import annotations

from datetime import datetime
from typing import cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import EmptyInput, Fields, InstantField, StrictSerializer
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import ApiView, get_or_404, paginate, read_body, read_query, require_user
from jobs.models import Backfill, BackfillState, Job
from jobs.models.visibility import shared_with
from jobs.scheduling import backfill as backfilling


class BackfillInput(StrictSerializer):
    """A past range; both ends are included."""

    def get_fields(self) -> Fields:
        # `from` is a Python keyword, so it cannot be a class attribute.
        return {
            "from": InstantField(help_text="Start of the range."),
            "to": InstantField(help_text="End of the range, not in the future."),
        }


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


def list_visible_backfills(user: User) -> QuerySet[Backfill]:
    return shared_with(user, Backfill.objects.all(), job="job")


class JobBackfill(ApiView):
    @extend_schema(
        operation_id="jobs_backfill",
        summary="Backfill a past range",
        request=BackfillInput,
        responses={202: BackfillOutput},
    )
    @idempotent()
    def post(self, request: Request, job_id: UUID) -> Create:
        """Create executions for the instants of a past range; an instant that has one gets no second.

        Executions are created as fast as the job runs them, so a backfill never floods the queue.
        """
        body = read_body(BackfillInput, request)
        user = require_user(request)
        get_or_404(shared_with(user, Job.objects.all()), job_id)

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
        responses=build_page_serializer(BackfillOutput),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        read_query(PageQuery, request)
        user = require_user(request)
        get_or_404(shared_with(user, Job.objects.all()), job_id)
        return paginate(list_visible_backfills(user).filter(job_id=job_id), request, BackfillOutput)


class BackfillCancel(ApiView):
    @extend_schema(operation_id="backfills_cancel", summary="Cancel a backfill", request=None, responses=BackfillOutput)
    def put(self, request: Request, backfill_id: UUID) -> Response:
        """Stop creating executions; those already created continue. Idempotent."""
        read_body(EmptyInput, request)
        backfill = get_or_404(list_visible_backfills(require_user(request)), backfill_id)
        backfilling.cancel_backfill(backfill_id)
        backfill.refresh_from_db()
        return Response(BackfillOutput(backfill).data)
