"""/schedules/preview: when schedules would fire; nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.fields import IdField, StrictSerializer, WholeNumberField
from jobs.api.job_input import ScheduleInput, schedule_spec
from jobs.api.jobs import InstantResults, coming_instants
from jobs.api.views import ApiView, read_body, user_of
from jobs.services import calendars, schedules


class PreviewedScheduleInput(ScheduleInput):
    id = IdField(
        required=False, help_text="Of a stored schedule, from which H is computed; without it, H is an example."
    )


class PreviewInput(StrictSerializer):
    schedules = PreviewedScheduleInput(many=True, max_length=conf.MAX_SCHEDULES_PER_JOB)  # type: ignore[call-arg]  # of the list
    count = WholeNumberField(default=5, min_value=1, max_value=100)


class SchedulesPreview(ApiView):
    @extend_schema(
        operation_id="schedules_preview", summary="Preview schedules", request=PreviewInput, responses=InstantResults
    )
    def post(self, request: Request) -> Response:
        """The next instants of schedules as a job would have them: refused as they would be, and not stored."""
        body = read_body(PreviewInput, request)
        written = cast("Sequence[Mapping[str, Any]]", body["schedules"])
        specs = [schedule_spec(each) for each in written]
        held = calendars.find_calendars(user_of(request).pk, specs, lock=False)
        now = schedules.database_now()
        planned = [
            schedules.plan_schedule(
                index,
                spec,
                now,
                calendar=held[spec.calendar] if spec.calendar is not None else None,
                schedule_id=cast("UUID | None", each.get("id")),
            )
            for index, (each, spec) in enumerate(zip(written, specs, strict=True))
        ]
        return Response(coming_instants(planned, now, cast("int", body["count"])))
