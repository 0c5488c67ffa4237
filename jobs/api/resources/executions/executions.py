"""/executions: list, cancel and explain executions; list their attempts, events and outputs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import EmptyInput, InstantField, OneOfField
from jobs.api.framework.query_params import (
    PageQuery,
    RangeValidationMixin,
    build_page_serializer,
    build_results_serializer,
)
from jobs.api.framework.views import ApiView, get_or_404, paginate_filtered, read_body, read_query, require_user
from jobs.api.resources.representations import AttemptOutput, EventOutput, ExecutionOutput, FileOutput
from jobs.api.worker_protocol.runs import announce_output
from jobs.definitions import lifecycle
from jobs.dispatch import explain
from jobs.domain.states import State
from jobs.execution.execution_list import ORDERS, ExecutionFilters, list_executions
from jobs.models import Execution, ExecutionEvent, Output
from jobs.models.visibility import require_owner, shared_with
from jobs.storage import s3
from jobs.storage.outputs import delete_outputs

_FILTER_NAMES = {each.name for each in fields(ExecutionFilters)}
MAX_EVENTS = 1000
# Not bounded by max_attempts: a released attempt uses up no try.
MAX_ATTEMPTS = 1000


class ExecutionQuery(RangeValidationMixin, PageQuery):
    ranges = (("scheduled_from", "scheduled_to"), ("ended_from", "ended_to"))

    job_id = serializers.UUIDField(required=False, help_text="Filter by job.")
    worker_id = serializers.UUIDField(required=False, help_text="Filter by the worker of the latest attempt.")
    status = OneOfField([s.value for s in State], required=False, help_text="Filter by status.")
    queue = serializers.CharField(required=False, max_length=63, help_text="Filter by name of the queue.")
    owner = serializers.CharField(
        required=False,
        max_length=150,
        help_text="Filter by owner of the job. Of other users, only shared jobs are included.",
    )
    team = serializers.CharField(
        required=False, max_length=63, help_text="Filter by name of the team that shares the job."
    )
    retry_of = serializers.UUIDField(required=False, help_text="Find the execution that retries this one.")
    scheduled_from = InstantField(required=False, help_text="Scheduled at or after this instant.")
    scheduled_to = InstantField(required=False, help_text="Scheduled before this instant.")
    ended_from = InstantField(required=False, help_text="Ended at or after this instant.")
    ended_to = InstantField(required=False, help_text="Ended before this instant.")
    ordering = OneOfField(
        list(ORDERS), default="-created", help_text="Sort order. `ended_at` lists finished executions only."
    )


def list_visible_executions(user: User) -> QuerySet[Execution]:
    return shared_with(user, select_executions_with_job(), job="job")


def select_executions_with_job() -> QuerySet[Execution]:
    """Select executions with everything that ExecutionOutput reads."""
    return Execution.objects.select_related("job")


class Executions(ApiView):
    @extend_schema(
        operation_id="executions_list",
        summary="List executions",
        parameters=[ExecutionQuery],
        responses=build_page_serializer(ExecutionOutput),
    )
    def get(self, request: Request) -> Response:
        """Filters may be combined. A short page may still have a `next`."""
        query = read_query(ExecutionQuery, request)
        user, ordering = require_user(request), str(query["ordering"])
        filters = ExecutionFilters(**{name: query[name] for name in query if name in _FILTER_NAMES})  # type: ignore[arg-type]
        listing = list_executions(user, filters, ordering)
        return paginate_filtered(select_executions_with_job(), listing, ordering, request, ExecutionOutput)


class ExecutionCancel(ApiView):
    @extend_schema(
        operation_id="executions_cancel", summary="Cancel an execution", request=None, responses=ExecutionOutput
    )
    def put(self, request: Request, execution_id: UUID) -> Response:
        """Cancel a waiting execution, or stop a running one. Idempotent; a finished execution stays as it is."""
        read_body(EmptyInput, request)
        user = require_user(request)
        execution = get_or_404(list_visible_executions(user), execution_id)
        lifecycle.cancel_execution(execution_id, by=user.get_username())
        execution.refresh_from_db()
        return Response(ExecutionOutput(execution).data)


class GateOutput(serializers.Serializer[Any]):
    """A condition for the execution to run. One worker's closed gate does not matter if another worker has capacity."""

    gate = serializers.CharField(
        source="name", help_text="Name of the gate, such as dependency, time, queue_limit or resource.cpu."
    )
    open = serializers.BooleanField()
    value = serializers.JSONField(allow_null=True, help_text="Requested or current value.")
    limit = serializers.JSONField(allow_null=True, help_text="Available or awaited value.")
    holders = serializers.ListField(
        child=serializers.UUIDField(), help_text="Ids of the executions, job, queue or worker that decide the gate."
    )
    words = serializers.CharField(help_text="The gate in one sentence.")


class ExplanationOutput(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    status = serializers.ChoiceField([s.value for s in State], source="state")
    words = serializers.CharField(help_text="The explanation in one sentence.")
    gates = GateOutput(many=True)


class ExecutionExplain(ApiView):
    @extend_schema(
        operation_id="executions_explain",
        summary="Explain why an execution is waiting",
        responses=ExplanationOutput,
        description="List every gate before the execution, as the next placement would evaluate it. Empty once placed.",
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        viewer = require_user(request)
        get_or_404(list_visible_executions(viewer), execution_id)
        return Response(ExplanationOutput(explain.explain_execution(execution_id, viewer=viewer)).data)


class ExecutionAttempts(ApiView):
    @extend_schema(
        operation_id="executions_attempts",
        summary="List the attempts of an execution",
        responses=build_results_serializer(AttemptOutput),
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """List the latest 1000 attempts, oldest first, with their times, outcome, resource usage and sandbox."""
        execution = get_or_404(list_visible_executions(require_user(request)), execution_id)
        latest = list(execution.attempts.order_by("-number")[:MAX_ATTEMPTS])
        return Response({"results": AttemptOutput(latest[::-1], many=True).data})


class ExecutionEvents(ApiView):
    @extend_schema(
        operation_id="executions_events",
        summary="List the events of an execution",
        responses=build_results_serializer(EventOutput),
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """List exceptional events, such as lost, released, retried or redriven. Normal stages are fields instead."""
        get_or_404(list_visible_executions(require_user(request)), execution_id)
        events = ExecutionEvent.objects.filter(execution_id=execution_id).order_by("created_at", "id")[:MAX_EVENTS]
        return Response({"results": EventOutput(events, many=True).data})


class ExecutionOutputs(ApiView):
    @extend_schema(
        operation_id="executions_outputs",
        summary="List the outputs of an execution",
        responses=build_results_serializer(FileOutput),
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """List the files that the execution left, with download URLs that are valid for a few minutes."""
        get_or_404(list_visible_executions(require_user(request)), execution_id)
        files = Output.objects.filter(attempt__execution_id=execution_id).select_related("attempt").order_by("name")
        results = [
            {
                "name": file.name,
                "size": file.size,
                "sha256": file.sha256,
                "url": s3.presign_download(s3.output_key(execution_id, file.attempt.number, file.sha256), file.name),
            }
            for file in files
        ]
        return Response({"results": FileOutput(results, many=True).data})

    @extend_schema(
        operation_id="executions_delete_outputs",
        summary="Delete the outputs of an execution",
        request=None,
        responses={204: None},
        description="Delete the outputs of a finished execution and record it in its events.",
    )
    def delete(self, request: Request, execution_id: UUID) -> Response:
        read_body(EmptyInput, request)
        user = require_user(request)
        require_owner(user, get_or_404(list_visible_executions(user), execution_id).job)
        delete_outputs(execution_id, by=user.get_username())
        return Response(status=status.HTTP_204_NO_CONTENT)

    post = announce_output
