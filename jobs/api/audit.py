"""/audit/firings: whether every instant that was due is accounted for; one's own jobs, or all of them for staff."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import InstantField, StrictSerializer
from jobs.api.views import ApiView, find, read_query, user_of
from jobs.models import Job
from jobs.querysets.visibility import shared_with
from jobs.services.audit_report import What
from jobs.services.auditing import audit_firings

# Less than clients wait for an answer.
WITHIN_SECONDS = 20.0


class AuditQuery(StrictSerializer):
    to = InstantField(required=False, help_text="The last instant; now, if left out.")
    job_id = serializers.UUIDField(required=False, help_text="Only the schedules of this job.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # A field of this name cannot be declared: it is a word of the language.
        return {"from": InstantField(help_text="The first instant."), **super().get_fields()}


class LatenessOutput(serializers.Serializer[Any]):
    p50 = serializers.FloatField()
    p90 = serializers.FloatField()
    p99 = serializers.FloatField()
    max = serializers.FloatField()


class DifferenceOutput(serializers.Serializer[Any]):
    schedule_id = serializers.UUIDField()
    instant = serializers.DateTimeField(allow_null=True)
    what = serializers.ChoiceField([what.value for what in What])
    count = serializers.IntegerField()


class AuditOutput(serializers.Serializer[Any]):
    clean = serializers.BooleanField(help_text="Whether every instant is explained.")
    to = serializers.DateTimeField()
    pruned_before = serializers.DateTimeField(
        allow_null=True, help_text="Retention has pruned what was before: the audit cannot begin earlier."
    )
    schedules = serializers.IntegerField()
    executions = serializers.IntegerField()
    expected = serializers.IntegerField()
    fired = serializers.IntegerField()
    missed = serializers.IntegerField()
    skipped = serializers.IntegerField()
    dropped = serializers.IntegerField()
    absent = serializers.IntegerField()
    overdue = serializers.IntegerField()
    extra = serializers.IntegerField()
    duplicate = serializers.IntegerField()
    early = serializers.IntegerField()
    uncomputable = serializers.IntegerField()
    quarantined = serializers.IntegerField()
    lateness_ms = LatenessOutput(allow_null=True)
    differences = DifferenceOutput(many=True, help_text="The first of them.")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        began = serializers.DateTimeField(help_text="Where it began: as asked, or at `pruned_before` if that is later.")
        return {"from": began, **super().get_fields()}


class Firings(ApiView):
    @extend_schema(
        operation_id="audit_firings", summary="Audit firings", parameters=[AuditQuery], responses=AuditOutput
    )
    def get(self, request: Request) -> Response:
        """Recomputes every instant that was due and compares it with what was fired; staff does so for all jobs."""
        query, user = read_query(AuditQuery, request), user_of(request)
        job_id = cast("UUID | None", query.get("job_id"))
        if job_id is not None:
            find(shared_with(user, Job.objects.all()), job_id)
        audit = audit_firings(
            cast("datetime", query["from"]),
            cast("datetime", query.get("to", datetime.now(UTC))),
            owner_id=user.pk if job_id is None and not user.is_staff else None,
            job_id=job_id,
            within_seconds=WITHIN_SECONDS,
        )
        return Response(audit.as_json())
