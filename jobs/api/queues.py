"""/queues: what jobs wait in. Everybody who is logged in may look; staff makes, tunes, pauses and deletes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.conditional import IF_MATCH, IF_NONE_MATCH, NOT_MODIFIED, show, tag_of, unless_edited
from jobs.api.fields import NumberField, StrictSerializer, TextField, TruthField, WholeNumberField
from jobs.api.job_edit_input import WithoutDefaults
from jobs.api.job_input import DAY_SECONDS, LARGEST_INTEGER
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.repeating import Create, repeatable
from jobs.api.representations import QueueOutput
from jobs.api.views import ApiView, check_staff, find, page, read_body, read_query
from jobs.models import Queue
from jobs.models.queue import NAME
from jobs.services import queues

# Nothing of a queue changes without an edit.
MOVING = ()
FOR_STAFF = "Only staff may make, change or delete a queue."


class _Tuning(StrictSerializer):
    pool = TextField(default="default", max_length=63, validators=[NAME], help_text="The workers that serve it.")
    priority = WholeNumberField(
        default=0, min_value=-100, max_value=100, help_text="Added to the priority of every job of this queue."
    )
    max_concurrency = WholeNumberField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=LARGEST_INTEGER,
        help_text="How many may be active at once; null: no limit.",
    )
    aging_seconds = NumberField(
        default=60,
        min_value=0,
        max_value=DAY_SECONDS,
        help_text="One step of priority is worth this many seconds of waiting.",
    )
    paused = TruthField(default=False, help_text="Nothing of it is placed; what runs goes on.")


class QueueInput(_Tuning):
    name = TextField(max_length=63, validators=[NAME], help_text="Lower-case letters, digits, `_`, `.` and `-`.")


class QueueEditInput(WithoutDefaults, _Tuning):
    """What is left out stays as it is. Jobs are submitted to a queue by its name, so that stays."""


def _unless_edited(request: Request, queue_id: UUID) -> Callable[[], None]:
    return unless_edited(request, lambda: QueueOutput(Queue.objects.get(id=queue_id)).data, moving=MOVING)


class Queues(ApiView):
    @extend_schema(
        operation_id="queues_list", summary="List queues", parameters=[PageQuery], responses=page_of(QueueOutput)
    )
    def get(self, request: Request) -> Response:
        """Everybody who is logged in may look."""
        read_query(PageQuery, request)
        return page(Queue.objects.all(), request, QueueOutput)

    @extend_schema(
        operation_id="queues_create", summary="Create a queue", request=QueueInput, responses={201: QueueOutput}
    )
    @repeatable()
    def post(self, request: Request) -> Create:
        """For staff."""
        check_staff(request, FOR_STAFF)
        body = cast("dict[str, Any]", read_body(QueueInput, request))

        def create() -> Response:
            queue = queues.create_queue(**body)
            return Response(
                QueueOutput(queue).data,
                status=status.HTTP_201_CREATED,
                headers={"Location": f"{request.path}/{queue.id}"},
            )

        return create


class QueueDetail(ApiView):
    @extend_schema(
        operation_id="queues_read",
        summary="Read a queue",
        parameters=[IF_NONE_MATCH],
        responses={200: QueueOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, queue_id: UUID) -> HttpResponse:
        return show(request, QueueOutput(find(Queue.objects.all(), queue_id)).data, moving=MOVING)

    @extend_schema(
        operation_id="queues_edit",
        summary="Edit, pause or resume a queue",
        parameters=[IF_MATCH],
        request=QueueEditInput,
        responses=QueueOutput,
    )
    def patch(self, request: Request, queue_id: UUID) -> Response:
        """For staff. What waits in it is looked at anew; what runs goes on."""
        queue = find(Queue.objects.all(), queue_id)
        check_staff(request, FOR_STAFF)
        body = cast("dict[str, Any]", read_body(QueueEditInput, request))
        for name, value in body.items():
            setattr(queue, name, value)
        queues.save_queue(queue, changed=body.keys(), when_locked=_unless_edited(request, queue_id))
        shown = QueueOutput(Queue.objects.get(id=queue_id)).data
        return Response(shown, headers={"ETag": tag_of(shown, moving=MOVING)})

    @extend_schema(
        operation_id="queues_delete",
        summary="Delete a queue",
        parameters=[IF_MATCH],
        request=None,
        responses={204: None},
    )
    def delete(self, request: Request, queue_id: UUID) -> Response:
        """For staff. Refused while a job, a former version of one or an execution names it."""
        read_body(NoInput, request)
        queue = find(Queue.objects.all(), queue_id)
        check_staff(request, FOR_STAFF)
        queues.delete_queue(queue, when_locked=_unless_edited(request, queue_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
