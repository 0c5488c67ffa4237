"""/calendars: named sets of dates on which schedules do not fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Count, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
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
    BoundedListField,
    EmptyInput,
    PartialInput,
    StrictDateField,
    StrictSerializer,
    TextField,
)
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import ApiView, get_or_404, paginate, read_body, read_query, require_user, respond_created
from jobs.domain.recurrence import MAX_EXCLUDED_DATES
from jobs.models import Calendar, JobState, Schedule
from jobs.models.visibility import visible_to
from jobs.scheduling import calendars

# Fields that change without an edit of the calendar.
VOLATILE_FIELDS = ("used_by",)


class CalendarInput(StrictSerializer):
    name = TextField(max_length=100, help_text="Name, unique among your calendars.")
    dates = BoundedListField(
        child=StrictDateField(),
        default=list,
        max_length=MAX_EXCLUDED_DATES,
        help_text="Dates on which schedules do not fire, in each schedule's time zone.",
    )


class CalendarEditInput(PartialInput, CalendarInput):
    """Omitted fields stay unchanged; `dates` replaces the whole list."""


class CalendarOutput(serializers.ModelSerializer[Calendar]):
    owner = serializers.CharField(source="owner.username")
    used_by = serializers.IntegerField(help_text="Number of schedules that use it.")

    class Meta:
        model = Calendar
        fields = ["id", "name", "owner", "dates", "used_by", "created_at", "updated_at"]
        read_only_fields = fields


def list_visible_calendars(user: User) -> QuerySet[Calendar]:
    # A subquery counts for the rows of the page only; a join would count for all calendars first.
    in_use = Schedule.objects.filter(calendar=OuterRef("pk"), deleted_at__isnull=True).exclude(
        job__state=JobState.CANCELLED
    )
    counted = in_use.order_by().values("calendar").annotate(number=Count("pk")).values("number")
    return (
        visible_to(user, Calendar.objects.all())
        .select_related("owner")
        .annotate(used_by=Coalesce(Subquery(counted), Value(0)))
    )


def _make_if_match_check(request: Request, calendar_id: UUID) -> Callable[[], None]:
    rows = list_visible_calendars(require_user(request))
    return make_if_match_check(
        request, lambda: CalendarOutput(rows.get(id=calendar_id)).data, volatile_fields=VOLATILE_FIELDS
    )


class Calendars(ApiView):
    @extend_schema(
        operation_id="calendars_list",
        summary="List calendars",
        parameters=[PageQuery],
        responses=build_page_serializer(CalendarOutput),
    )
    def get(self, request: Request) -> Response:
        read_query(PageQuery, request)
        return paginate(list_visible_calendars(require_user(request)), request, CalendarOutput)

    @extend_schema(
        operation_id="calendars_create",
        summary="Create a calendar",
        request=CalendarInput,
        responses={201: CalendarOutput},
    )
    @idempotent()
    def post(self, request: Request) -> Create:
        body = cast("dict[str, Any]", read_body(CalendarInput, request))
        user = require_user(request)

        def create() -> Response:
            calendar = calendars.create_calendar(owner=user, name=body["name"], dates=body["dates"])
            return respond_created(
                request, calendar.id, CalendarOutput(list_visible_calendars(user).get(id=calendar.id)).data
            )

        return create


class CalendarDetail(ApiView):
    @extend_schema(
        operation_id="calendars_read",
        summary="Read a calendar",
        parameters=[IF_NONE_MATCH],
        responses={200: CalendarOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, calendar_id: UUID) -> HttpResponse:
        return respond_conditionally(
            request,
            CalendarOutput(get_or_404(list_visible_calendars(require_user(request)), calendar_id)).data,
            volatile_fields=VOLATILE_FIELDS,
        )

    @extend_schema(
        operation_id="calendars_edit",
        summary="Edit a calendar",
        parameters=[IF_MATCH],
        request=CalendarEditInput,
        responses=CalendarOutput,
    )
    def patch(self, request: Request, calendar_id: UUID) -> Response:
        """Edit the calendar and, in the same transaction, all schedules that use it.

        Instants that are already due fire as before the edit.
        """
        body = cast("dict[str, Any]", read_body(CalendarEditInput, request))
        rows = list_visible_calendars(require_user(request))
        get_or_404(rows, calendar_id)
        calendars.edit_calendar(calendar_id, **body, precondition=_make_if_match_check(request, calendar_id))
        values = CalendarOutput(rows.get(id=calendar_id)).data
        return Response(values, headers={"ETag": compute_etag(values, volatile_fields=VOLATILE_FIELDS)})

    @extend_schema(
        operation_id="calendars_delete",
        summary="Delete a calendar",
        parameters=[IF_MATCH],
        request=None,
        responses={204: None},
    )
    def delete(self, request: Request, calendar_id: UUID) -> Response:
        """Fails while schedules use the calendar."""
        read_body(EmptyInput, request)
        get_or_404(list_visible_calendars(require_user(request)), calendar_id)
        calendars.delete_calendar(calendar_id, precondition=_make_if_match_check(request, calendar_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
