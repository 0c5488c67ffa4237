"""/dead-letters: what failed for good, to be redriven or dismissed; and the retry of any execution that has ended."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.executions import executions_of, shown_executions
from jobs.api.fields import OneOfField
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.repeating import Create, repeatable
from jobs.api.representations import ExecutionOutput
from jobs.api.views import ApiView, find, read_body, read_query, user_of, walked_page
from jobs.models import DeadLetter, Execution
from jobs.services import dead_letters, retrying
from jobs.services.execution_lists import ExecutionFilters, list_executions


class DeadLetterQuery(PageQuery):
    job_id = serializers.UUIDField(required=False, help_text="Of this job.")
    status = OneOfField(
        DeadLetter.values, default=DeadLetter.OPEN.value, help_text="What became of them; `open`: nothing yet."
    )


def dead_letters_of(user: User) -> QuerySet[Execution]:
    return executions_of(user).filter(dead_letter__isnull=False)


def _made(user: User, execution_id: UUID) -> Response:
    made = executions_of(user).get(id=execution_id)
    return Response(ExecutionOutput(made).data, status=status.HTTP_201_CREATED)


class DeadLetters(ApiView):
    @extend_schema(
        operation_id="dead_letters_list",
        summary="List dead letters",
        parameters=[DeadLetterQuery],
        responses=page_of(ExecutionOutput),
    )
    def get(self, request: Request) -> Response:
        """Executions that failed for good and that nobody has redriven or dismissed; or, by status, those others."""
        query = read_query(DeadLetterQuery, request)
        user, job_id = user_of(request), query.get("job_id")
        filters = ExecutionFilters(
            job_id=job_id if isinstance(job_id, UUID) else None, dead_letter=str(query["status"])
        )
        listing = list_executions(user, filters, "-created")
        return walked_page(shown_executions(), listing, "-created", request, ExecutionOutput)


class DeadLetterRedrive(ApiView):
    @extend_schema(
        operation_id="dead_letters_redrive",
        summary="Redrive a dead letter",
        request=None,
        responses={201: ExecutionOutput},
    )
    @repeatable()
    def post(self, request: Request, execution_id: UUID) -> Create:
        """A new execution for the same instant, of the job as it is now; `retry_of` points back. Once only."""
        read_body(NoInput, request)
        user = user_of(request)
        find(dead_letters_of(user), execution_id)
        return lambda: _made(user, retrying.redrive_dead_letter(execution_id, by=user.get_username()))


class DeadLetterDismiss(ApiView):
    @extend_schema(
        operation_id="dead_letters_dismiss", summary="Dismiss a dead letter", request=None, responses=ExecutionOutput
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        """Takes it off the list; the execution and its history stay."""
        read_body(NoInput, request)
        user = user_of(request)
        execution = find(dead_letters_of(user), execution_id)
        dead_letters.dismiss_dead_letter(execution_id, by=user.get_username())
        execution.refresh_from_db()
        return Response(ExecutionOutput(execution).data)


class ExecutionRetry(ApiView):
    @extend_schema(
        operation_id="executions_retry", summary="Retry an execution", request=None, responses={201: ExecutionOutput}
    )
    @repeatable()
    def post(self, request: Request, execution_id: UUID) -> Create:
        """Whatever it ended as but success: a new execution for the same instant; `retry_of` points back."""
        read_body(NoInput, request)
        user = user_of(request)
        find(executions_of(user), execution_id)
        return lambda: _made(user, retrying.retry_execution(execution_id, by=user.get_username()))
