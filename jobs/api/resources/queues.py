"""/queues: every user may read queues; staff creates, edits, pauses and deletes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.conditional import (
    IF_MATCH,
    IF_NONE_MATCH,
    NOT_MODIFIED,
    compute_etag,
    make_if_match_check,
    respond_conditionally,
)
from jobs.api.framework.fields import (
    MAX_INT32,
    EmptyInput,
    NumberField,
    PartialInput,
    StrictBooleanField,
    StrictIntegerField,
    StrictSerializer,
    TextField,
)
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import (
    ApiView,
    get_or_404,
    paginate,
    read_body,
    read_query,
    require_staff,
    respond_created,
)
from jobs.api.resources.definitions.job_input import DAY_SECONDS
from jobs.api.resources.representations import QueueOutput
from jobs.dispatch import queues
from jobs.models import Queue
from jobs.models.queue import NAME

QUEUES_WITH_TEAM = Queue.objects.select_related("team")
STAFF_ONLY_MESSAGE = "Only staff may create, edit or delete a queue."


class _QueueSettingsInput(StrictSerializer):
    pool = TextField(
        default="default", max_length=63, validators=[NAME], help_text="Pool of workers that serves the queue."
    )
    priority = StrictIntegerField(
        default=0, min_value=-100, max_value=100, help_text="Added to the priority of every job of this queue."
    )
    max_concurrency = StrictIntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=MAX_INT32,
        help_text="Maximum number of active executions; null for no limit.",
    )
    aging_seconds = NumberField(
        default=60,
        min_value=0,
        max_value=DAY_SECONDS,
        help_text="Seconds of waiting that count as one step of priority.",
    )
    paused = StrictBooleanField(default=False, help_text="Place no executions of this queue; running ones continue.")
    team = TextField(
        default=None,
        allow_null=True,
        max_length=63,
        help_text="Accept only jobs whose owner is staff or a member of this team; null for all.",
    )


class QueueInput(_QueueSettingsInput):
    name = TextField(max_length=63, validators=[NAME], help_text="Lower-case letters, digits, `_`, `.` and `-`.")


class QueueEditInput(PartialInput, _QueueSettingsInput):
    """Omitted fields stay unchanged. The name cannot be changed, because jobs refer to it."""


def _make_if_match_check(request: Request, queue_id: UUID) -> Callable[[], None]:
    return make_if_match_check(request, lambda: QueueOutput(Queue.objects.get(id=queue_id)).data)


def _resolve_team(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"team": queues.find_team(body["team"])} if "team" in body else body


class Queues(ApiView):
    @extend_schema(
        operation_id="queues_list",
        summary="List queues",
        parameters=[PageQuery],
        responses=build_page_serializer(QueueOutput),
    )
    def get(self, request: Request) -> Response:
        """List all queues."""
        read_query(PageQuery, request)
        return paginate(QUEUES_WITH_TEAM, request, QueueOutput)

    @extend_schema(
        operation_id="queues_create", summary="Create a queue", request=QueueInput, responses={201: QueueOutput}
    )
    @idempotent()
    def post(self, request: Request) -> Create:
        """For staff only."""
        require_staff(request, STAFF_ONLY_MESSAGE)
        body = cast("dict[str, Any]", read_body(QueueInput, request))

        def create() -> Response:
            queue = queues.create_queue(**_resolve_team(body))
            return respond_created(request, queue.id, QueueOutput(queue).data)

        return create


class QueueDetail(ApiView):
    @extend_schema(
        operation_id="queues_read",
        summary="Read a queue",
        parameters=[IF_NONE_MATCH],
        responses={200: QueueOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, queue_id: UUID) -> HttpResponse:
        return respond_conditionally(request, QueueOutput(get_or_404(Queue.objects.all(), queue_id)).data)

    @extend_schema(
        operation_id="queues_edit",
        summary="Edit, pause or resume a queue",
        parameters=[IF_MATCH],
        request=QueueEditInput,
        responses=QueueOutput,
    )
    def patch(self, request: Request, queue_id: UUID) -> Response:
        """For staff only. Waiting executions are placed by the new settings; running ones continue."""
        queue = get_or_404(Queue.objects.all(), queue_id)
        require_staff(request, STAFF_ONLY_MESSAGE)
        body = cast("dict[str, Any]", read_body(QueueEditInput, request))
        for name, value in _resolve_team(body).items():
            setattr(queue, name, value)
        queues.save_queue(queue, changed=body.keys(), precondition=_make_if_match_check(request, queue_id))
        values = QueueOutput(Queue.objects.get(id=queue_id)).data
        return Response(values, headers={"ETag": compute_etag(values)})

    @extend_schema(
        operation_id="queues_delete",
        summary="Delete a queue",
        parameters=[IF_MATCH],
        request=None,
        responses={204: None},
    )
    def delete(self, request: Request, queue_id: UUID) -> Response:
        """For staff only. Fails while a job, an old version of a job or an execution uses the queue."""
        read_body(EmptyInput, request)
        queue = get_or_404(Queue.objects.all(), queue_id)
        require_staff(request, STAFF_ONLY_MESSAGE)
        queues.delete_queue(queue, precondition=_make_if_match_check(request, queue_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
