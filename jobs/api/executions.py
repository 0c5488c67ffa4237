"""/executions: list, read, cancel, explain, and what each of them left behind."""

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

from jobs import storage
from jobs.api.fields import InstantField, OneOfField
from jobs.api.jobs import NoInput, check_owner
from jobs.api.queries import PageQuery, Ranges, page_of, results_of
from jobs.api.representations import AttemptOutput, EventOutput, ExecutionOutput, FileOutput
from jobs.api.views import ApiView, find, read_body, read_query, user_of, walked_page
from jobs.models import Execution, ExecutionEvent, Output
from jobs.querysets.visibility import shared_with
from jobs.services import commands, explaining
from jobs.services.execution_lists import ORDERS, ExecutionFilters, list_executions
from jobs.services.outputs import delete_outputs
from jobs.states import State

_FILTERS = {each.name for each in fields(ExecutionFilters)}
MAX_EVENTS = 1000
# What is released again and again uses up no try.
MAX_ATTEMPTS = 1000


class ExecutionQuery(Ranges, PageQuery):
    ranges = (("scheduled_from", "scheduled_to"), ("ended_from", "ended_to"))

    job_id = serializers.UUIDField(required=False, help_text="Of this job.")
    worker_id = serializers.UUIDField(required=False, help_text="That this worker holds, or held last.")
    status = OneOfField([s.value for s in State], required=False, help_text="Those that stand so.")
    queue = serializers.CharField(required=False, max_length=63, help_text="The name of their queue.")
    owner = serializers.CharField(
        required=False, max_length=150, help_text="A user's name; of others, what they share with you."
    )
    team = serializers.CharField(required=False, max_length=63, help_text="Of jobs that are shared with this team.")
    retry_of = serializers.UUIDField(required=False, help_text="The one that repeats this execution.")
    scheduled_from = InstantField(required=False, help_text="For this instant or a later one.")
    scheduled_to = InstantField(required=False, help_text="For an instant before this one.")
    ended_from = InstantField(required=False, help_text="Ended at this instant or later.")
    ended_to = InstantField(required=False, help_text="Ended before this instant.")
    ordering = OneOfField(list(ORDERS), default="-created", help_text="By `ended_at` only those that have ended.")


def executions_of(user: User) -> QuerySet[Execution]:
    return shared_with(user, shown_executions(), job="job")


def shown_executions() -> QuerySet[Execution]:
    """With all that a representation shows."""
    return Execution.objects.select_related("job")


class Executions(ApiView):
    @extend_schema(
        operation_id="executions_list",
        summary="List executions",
        parameters=[ExecutionQuery],
        responses=page_of(ExecutionOutput),
    )
    def get(self, request: Request) -> Response:
        """The filters may be combined. A page that is short may still have a `next`."""
        query = read_query(ExecutionQuery, request)
        user, ordering = user_of(request), str(query["ordering"])
        filters = ExecutionFilters(**{name: query[name] for name in query if name in _FILTERS})  # type: ignore[arg-type]
        listing = list_executions(user, filters, ordering)
        return walked_page(shown_executions(), listing, ordering, request, ExecutionOutput)


class ExecutionCancel(ApiView):
    @extend_schema(
        operation_id="executions_cancel", summary="Cancel an execution", request=None, responses=ExecutionOutput
    )
    def put(self, request: Request, execution_id: UUID) -> Response:
        """Ends what waits and stops what runs; doing it again changes nothing, and what has ended stays as it is."""
        read_body(NoInput, request)
        user = user_of(request)
        execution = find(executions_of(user), execution_id)
        commands.cancel_execution(execution_id, by=user.get_username())
        execution.refresh_from_db()
        return Response(ExecutionOutput(execution).data)


class GateOutput(serializers.Serializer[Any]):
    """What must be so before it runs. A worker's gate that is closed does not matter while another worker has room."""

    gate = serializers.CharField(source="name", help_text="Such as dependency, time, queue_limit, resource.cpu.")
    open = serializers.BooleanField()
    value = serializers.JSONField(allow_null=True, help_text="What it asks for, or how things stand.")
    limit = serializers.JSONField(allow_null=True, help_text="What there is, or what is waited for.")
    holders = serializers.ListField(
        child=serializers.UUIDField(), help_text="The executions, the job, the queue or the worker that decide it."
    )
    words = serializers.CharField()


class ExplanationOutput(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    status = serializers.ChoiceField([s.value for s in State], source="state")
    words = serializers.CharField()
    gates = GateOutput(many=True)


class ExecutionExplain(ApiView):
    @extend_schema(
        operation_id="executions_explain",
        summary="Explain why an execution waits",
        responses=ExplanationOutput,
        description="Why it waits: every gate before it, as the next placement would find it. Empty once it is placed.",
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        find(executions_of(user_of(request)), execution_id)
        return Response(ExplanationOutput(explaining.explain_execution(execution_id)).data)


class ExecutionAttempts(ApiView):
    @extend_schema(
        operation_id="executions_attempts",
        summary="List the attempts of an execution",
        responses=results_of(AttemptOutput),
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """Every time that a worker took it: its stages, how it ended, what it used, what its sandbox was made of.

        The latest thousand, the first of them first.
        """
        execution = find(executions_of(user_of(request)), execution_id)
        latest = list(execution.attempts.order_by("-number")[:MAX_ATTEMPTS])
        return Response({"results": AttemptOutput(latest[::-1], many=True).data})


class ExecutionEvents(ApiView):
    @extend_schema(
        operation_id="executions_events", summary="List the events of an execution", responses=results_of(EventOutput)
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """What was not ordinary, such as lost, released, retried, redriven; the times of its stages say the rest."""
        find(executions_of(user_of(request)), execution_id)
        events = ExecutionEvent.objects.filter(execution_id=execution_id).order_by("created_at", "id")[:MAX_EVENTS]
        return Response({"results": EventOutput(events, many=True).data})


class ExecutionOutputs(ApiView):
    @extend_schema(
        operation_id="executions_outputs", summary="List the outputs of an execution", responses=results_of(FileOutput)
    )
    def get(self, request: Request, execution_id: UUID) -> Response:
        """The files that it left, each with an address that is good for a few minutes."""
        find(executions_of(user_of(request)), execution_id)
        files = Output.objects.filter(attempt__execution_id=execution_id).select_related("attempt").order_by("name")
        results = [
            {
                "name": file.name,
                "size": file.size,
                "sha256": file.sha256,
                "url": storage.presign_download(
                    storage.output_key(execution_id, file.attempt.number, file.sha256), file.name
                ),
            }
            for file in files
        ]
        return Response({"results": FileOutput(results, many=True).data})

    @extend_schema(
        operation_id="executions_delete_outputs",
        summary="Delete the outputs of an execution",
        request=None,
        responses={204: None},
        description="Frees what an ended execution left; its events say so.",
    )
    def delete(self, request: Request, execution_id: UUID) -> Response:
        read_body(NoInput, request)
        user = user_of(request)
        check_owner(user, find(executions_of(user), execution_id).job)
        delete_outputs(execution_id, by=user.get_username())
        return Response(status=status.HTTP_204_NO_CONTENT)
