"""/dead-letters: list, redrive and dismiss executions that failed for good; retry any finished execution."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import EmptyInput, OneOfField
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import ApiView, get_or_404, paginate_filtered, read_body, read_query, require_user
from jobs.api.resources.executions.executions import list_visible_executions, select_executions_with_job
from jobs.api.resources.representations import ExecutionOutput
from jobs.execution import dead_letters, manual_retries
from jobs.execution.execution_list import ExecutionFilters, list_executions
from jobs.models import DeadLetter, Execution


class DeadLetterQuery(PageQuery):
    job_id = serializers.UUIDField(required=False, help_text="Filter by job.")
    status = OneOfField(
        DeadLetter.values, default=DeadLetter.OPEN.value, help_text="Filter by status; `open` letters await a decision."
    )


def list_visible_dead_letters(user: User) -> QuerySet[Execution]:
    return list_visible_executions(user).filter(dead_letter__isnull=False)


def _build_created_response(user: User, execution_id: UUID) -> Response:
    execution = list_visible_executions(user).get(id=execution_id)
    return Response(ExecutionOutput(execution).data, status=status.HTTP_201_CREATED)


class DeadLetters(ApiView):
    @extend_schema(
        operation_id="dead_letters_list",
        summary="List dead letters",
        parameters=[DeadLetterQuery],
        responses=build_page_serializer(ExecutionOutput),
    )
    def get(self, request: Request) -> Response:
        """List executions that failed for good; by default those that were neither redriven nor dismissed."""
        query = read_query(DeadLetterQuery, request)
        user, job_id = require_user(request), query.get("job_id")
        filters = ExecutionFilters(
            job_id=job_id if isinstance(job_id, UUID) else None, dead_letter=str(query["status"])
        )
        listing = list_executions(user, filters, "-created")
        return paginate_filtered(select_executions_with_job(), listing, "-created", request, ExecutionOutput)


class DeadLetterRedrive(ApiView):
    @extend_schema(
        operation_id="dead_letters_redrive",
        summary="Redrive a dead letter",
        request=None,
        responses={201: ExecutionOutput},
    )
    @idempotent()
    def post(self, request: Request, execution_id: UUID) -> Create:
        """Create a new execution for the same instant, with the job's current version. A letter is redriven once.

        `retry_of` of the new execution is the dead letter.
        """
        read_body(EmptyInput, request)
        user = require_user(request)
        get_or_404(list_visible_dead_letters(user), execution_id)
        return lambda: _build_created_response(
            user, manual_retries.redrive_dead_letter(execution_id, by=user.get_username())
        )


class DeadLetterDismiss(ApiView):
    @extend_schema(
        operation_id="dead_letters_dismiss", summary="Dismiss a dead letter", request=None, responses=ExecutionOutput
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        """Remove the execution from the open dead letters; it stays readable."""
        read_body(EmptyInput, request)
        user = require_user(request)
        execution = get_or_404(list_visible_dead_letters(user), execution_id)
        dead_letters.dismiss_dead_letter(execution_id, by=user.get_username())
        execution.refresh_from_db()
        return Response(ExecutionOutput(execution).data)


class ExecutionRetry(ApiView):
    @extend_schema(
        operation_id="executions_retry", summary="Retry an execution", request=None, responses={201: ExecutionOutput}
    )
    @idempotent()
    def post(self, request: Request, execution_id: UUID) -> Create:
        """Create a new execution for the same instant, of any execution that ended without success.

        `retry_of` of the new execution is the old one.
        """
        read_body(EmptyInput, request)
        user = require_user(request)
        get_or_404(list_visible_executions(user), execution_id)
        return lambda: _build_created_response(
            user, manual_retries.retry_execution(execution_id, by=user.get_username())
        )
