"""/audit/attempts: check that limits held, nothing ran twice at once and nothing waits without a reason."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.waiter_pool import expensive_read
from jobs.api.framework.fields import Fields
from jobs.api.framework.views import ApiView, require_user
from jobs.api.resources.audit_firings import AuditQuery, read_scope
from jobs.verify.attempt_check import Violation
from jobs.verify.attempts import audit_attempts


class ViolationOutput(serializers.Serializer[Any]):
    what = serializers.ChoiceField([violation.value for violation in Violation])
    execution_id = serializers.UUIDField()
    at = serializers.DateTimeField(help_text="When the attempt was placed.")
    active = serializers.IntegerField(
        allow_null=True, help_text="Active attempts of the job or queue at that time, including this one."
    )
    limit = serializers.IntegerField(allow_null=True, help_text="Limit in force at that time.")


class AttemptAuditOutput(serializers.Serializer[Any]):
    clean = serializers.BooleanField(help_text="Whether the check completed without findings.")
    to = serializers.DateTimeField()
    pruned_before = serializers.DateTimeField(
        allow_null=True, help_text="Retention has pruned older data; the check cannot begin earlier."
    )
    attempts = serializers.IntegerField(help_text="Attempts placed in the range.")
    peak = serializers.IntegerField(help_text="Maximum number of attempts active at the same time.")
    overlapping = serializers.IntegerField(
        help_text="Attempts that began before an earlier attempt of the same execution had ended."
    )
    over_job_limit = serializers.IntegerField(help_text="Attempts placed beyond their job's `max_concurrency`.")
    over_queue_limit = serializers.IntegerField(help_text="Attempts placed beyond their queue's `max_concurrency`.")
    never_ended = serializers.IntegerField(help_text="Attempts without an end whose execution has moved on.")
    waiting_checked = serializers.IntegerField(help_text="Long-waiting executions that were checked.")
    waiting_unchecked = serializers.IntegerField(help_text="Long-waiting executions that were not checked for time.")
    stuck = serializers.IntegerField(help_text="Long-waiting executions that no gate holds back.")
    differences = ViolationOutput(many=True, help_text="The first violations found.")

    def get_fields(self) -> Fields:
        began = serializers.DateTimeField(
            help_text="Start of the check: the requested one, or `pruned_before` if later."
        )
        return {"from": began, **super().get_fields()}


class Attempts(ApiView):
    @extend_schema(
        operation_id="audit_attempts",
        summary="Audit attempts",
        parameters=[AuditQuery],
        responses=AttemptAuditOutput,
    )
    def get(self, request: Request) -> Response:
        """Check that no execution ran twice at once, that limits held, and that nothing waits without a reason."""
        scope = read_scope(request)
        with expensive_read(require_user(request).pk):
            return Response(audit_attempts(**scope).as_json())
