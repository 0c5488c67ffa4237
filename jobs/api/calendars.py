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

from jobs.api.conditional import IF_MATCH, IF_NONE_MATCH, NOT_MODIFIED, show, tag_of, unless_edited
from jobs.api.fields import BoundedListField, DayField, StrictSerializer, TextField
from jobs.api.job_edit_input import WithoutDefaults
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.repeating import Create, repeatable
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.models import Calendar, JobState, Schedule
from jobs.querysets.visibility import visible_to
from jobs.recurrence import MAX_EXCLUDED_DATES
from jobs.services import calendars

# What of a calendar changes without anybody's edit of it.
MOVING = ("used_by",)


class CalendarInput(StrictSerializer):
    name = TextField(max_length=100, help_text="Yours alone: schedules call the calendar by it, or by its id.")
    dates = BoundedListField(
        child=DayField(),
        default=list,
        max_length=MAX_EXCLUDED_DATES,
        help_text="Dates without instants, in the time zone of each schedule.",
    )


class CalendarEditInput(WithoutDefaults, CalendarInput):
    """What is left out stays as it is; `dates` is the whole list."""


class CalendarOutput(serializers.ModelSerializer[Calendar]):
    owner = serializers.CharField(source="owner.username")
    used_by = serializers.IntegerField(help_text="How many schedules use it.")

    class Meta:
        model = Calendar
        fields = ["id", "name", "owner", "dates", "used_by", "created_at", "updated_at"]
        read_only_fields = fields


def calendars_of(user: User) -> QuerySet[Calendar]:
    # Counted for those on the page alone: a join would count for all of them first.
    in_use = Schedule.objects.filter(calendar=OuterRef("pk"), deleted_at__isnull=True).exclude(
        job__state=JobState.CANCELLED
    )
    counted = in_use.order_by().values("calendar").annotate(number=Count("pk")).values("number")
    return (
        visible_to(user, Calendar.objects.all())
        .select_related("owner")
        .annotate(used_by=Coalesce(Subquery(counted), Value(0)))
    )


def _unless_edited(request: Request, calendar_id: UUID) -> Callable[[], None]:
    rows = calendars_of(user_of(request))
    return unless_edited(request, lambda: CalendarOutput(rows.get(id=calendar_id)).data, moving=MOVING)


class Calendars(ApiView):
    @extend_schema(
        operation_id="calendars_list",
        summary="List calendars",
        parameters=[PageQuery],
        responses=page_of(CalendarOutput),
    )
    def get(self, request: Request) -> Response:
        read_query(PageQuery, request)
        return page(calendars_of(user_of(request)), request, CalendarOutput)

    @extend_schema(
        operation_id="calendars_create",
        summary="Create a calendar",
        request=CalendarInput,
        responses={201: CalendarOutput},
    )
    @repeatable()
    def post(self, request: Request) -> Create:
        body = cast("dict[str, Any]", read_body(CalendarInput, request))
        user = user_of(request)

        def create() -> Response:
            calendar = calendars.create_calendar(owner=user, name=body["name"], dates=body["dates"])
            return Response(
                CalendarOutput(calendars_of(user).get(id=calendar.id)).data,
                status=status.HTTP_201_CREATED,
                headers={"Location": f"{request.path}/{calendar.id}"},
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
        return show(request, CalendarOutput(find(calendars_of(user_of(request)), calendar_id)).data, moving=MOVING)

    @extend_schema(
        operation_id="calendars_edit",
        summary="Edit a calendar",
        parameters=[IF_MATCH],
        request=CalendarEditInput,
        responses=CalendarOutput,
    )
    def patch(self, request: Request, calendar_id: UUID) -> Response:
        """What is due by then fires as it was before; the schedules that use it follow in the same transaction."""
        body = cast("dict[str, Any]", read_body(CalendarEditInput, request))
        rows = calendars_of(user_of(request))
        find(rows, calendar_id)
        calendars.edit_calendar(calendar_id, **body, when_locked=_unless_edited(request, calendar_id))
        shown = CalendarOutput(rows.get(id=calendar_id)).data
        return Response(shown, headers={"ETag": tag_of(shown, moving=MOVING)})

    @extend_schema(
        operation_id="calendars_delete",
        summary="Delete a calendar",
        parameters=[IF_MATCH],
        request=None,
        responses={204: None},
    )
    def delete(self, request: Request, calendar_id: UUID) -> Response:
        """Refused while schedules use it."""
        read_body(NoInput, request)
        find(calendars_of(user_of(request)), calendar_id)
        calendars.delete_calendar(calendar_id, when_locked=_unless_edited(request, calendar_id))
        return Response(status=status.HTTP_204_NO_CONTENT)
