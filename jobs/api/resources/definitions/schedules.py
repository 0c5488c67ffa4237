"""/schedules/preview: compute the instants of schedules without storing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import StrictIntegerField, StrictSerializer, StrictUUIDField
from jobs.api.framework.views import ApiView, read_body, require_user
from jobs.api.resources.definitions.job_input import ScheduleInput, build_schedule_spec
from jobs.api.resources.definitions.jobs import InstantResults, list_next_instants
from jobs.db.clock import database_now
from jobs.domain import limits
from jobs.scheduling import calendars, schedules


class PreviewedScheduleInput(ScheduleInput):
    id = StrictUUIDField(
        required=False, help_text="Id of a stored schedule, which determines H; without it, H is an example."
    )


class PreviewInput(StrictSerializer):
    schedules = PreviewedScheduleInput(many=True, max_length=limits.MAX_SCHEDULES_PER_JOB)  # type: ignore[call-arg]  # of the list
    count = StrictIntegerField(default=5, min_value=1, max_value=100, help_text="Maximum number of instants.")


class SchedulesPreview(ApiView):
    @extend_schema(
        operation_id="schedules_preview", summary="Preview schedules", request=PreviewInput, responses=InstantResults
    )
    def post(self, request: Request) -> Response:
        """Validate schedules as for a job and list their next instants. Stores nothing."""
        body = read_body(PreviewInput, request)
        inputs = cast("Sequence[Mapping[str, Any]]", body["schedules"])
        specs = [build_schedule_spec(each) for each in inputs]
        calendar_by_name = calendars.find_calendars(require_user(request).pk, specs, lock=False)
        now = database_now()
        rows = [
            schedules.prepare_schedule(
                index,
                spec,
                now,
                calendar=calendar_by_name[spec.calendar] if spec.calendar is not None else None,
                schedule_id=cast("UUID | None", each.get("id")),
            )
            for index, (each, spec) in enumerate(zip(inputs, specs, strict=True))
        ]
        return Response(list_next_instants(rows, now, cast("int", body["count"])))
