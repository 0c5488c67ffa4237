"""/audit/firings: check that every due instant fired or is explained; users check their own jobs, staff all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypedDict, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.waiter_pool import expensive_read
from jobs.api.framework.fields import Fields, InstantField, StrictSerializer
from jobs.api.framework.views import ApiView, get_or_404, read_query, require_user
from jobs.models import Job
from jobs.models.visibility import is_operator, shared_with
from jobs.verify.firings import audit_firings
from jobs.verify.report import DifferenceKind

# Below clients' timeouts, and short because an audit shares the process's CPU with other requests.
AUDIT_TIMEOUT_SECONDS = 10.0


class AuditQuery(StrictSerializer):
    to = InstantField(required=False, help_text="End of the range. Default: now.")
    job_id = serializers.UUIDField(required=False, help_text="Check only this job.")

    def get_fields(self) -> Fields:
        # `from` is a Python keyword, so it cannot be a class attribute.
        return {"from": InstantField(help_text="Start of the range."), **super().get_fields()}


class LatenessOutput(serializers.Serializer[Any]):
    p50 = serializers.FloatField()
    p90 = serializers.FloatField()
    p99 = serializers.FloatField()
    max = serializers.FloatField()


class DifferenceOutput(serializers.Serializer[Any]):
    schedule_id = serializers.UUIDField()
    instant = serializers.DateTimeField(allow_null=True)
    what = serializers.ChoiceField([what.value for what in DifferenceKind])
    count = serializers.IntegerField()


class AuditOutput(serializers.Serializer[Any]):
    clean = serializers.BooleanField(help_text="Whether every instant is accounted for.")
    to = serializers.DateTimeField()
    pruned_before = serializers.DateTimeField(
        allow_null=True, help_text="Retention has pruned older data; the check cannot begin earlier."
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
    unarmed = serializers.IntegerField(help_text="Fixed-delay schedules that would never fire again.")
    quarantined = serializers.IntegerField()
    lateness_ms = LatenessOutput(allow_null=True)
    differences = DifferenceOutput(many=True, help_text="The first differences found.")

    def get_fields(self) -> Fields:
        began = serializers.DateTimeField(
            help_text="Start of the check: the requested one, or `pruned_before` if later."
        )
        return {"from": began, **super().get_fields()}


class AuditScope(TypedDict):
    from_: datetime
    to: datetime
    owner_id: int | None
    job_id: UUID | None
    within_seconds: float


def read_scope(request: Request) -> AuditScope:
    """Return the scope of the audit: the named job, else the user's own jobs, or all jobs for staff."""
    query, user = read_query(AuditQuery, request), require_user(request)
    job_id = cast("UUID | None", query.get("job_id"))
    if job_id is not None:
        get_or_404(shared_with(user, Job.objects.all()), job_id)
    return AuditScope(
        from_=cast("datetime", query["from"]),
        to=cast("datetime", query.get("to", datetime.now(UTC))),
        owner_id=user.pk if job_id is None and not is_operator(user) else None,
        job_id=job_id,
        within_seconds=AUDIT_TIMEOUT_SECONDS,
    )


class Firings(ApiView):
    @extend_schema(
        operation_id="audit_firings", summary="Audit firings", parameters=[AuditQuery], responses=AuditOutput
    )
    def get(self, request: Request) -> Response:
        """Recompute every due instant and compare it with the executions; for staff, of all jobs."""
        scope = read_scope(request)
        with expensive_read(require_user(request).pk):
            return Response(audit_firings(**scope).as_json())
