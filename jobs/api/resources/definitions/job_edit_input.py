"""Body of PATCH /jobs/{id}: that of POST /jobs, with every field optional."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.api.framework.fields import PartialInput, StrictUUIDField
from jobs.api.resources.definitions.job_input import (
    JobInput,
    RequirementsInput,
    RetryInput,
    ScheduleInput,
    convert_job_fields,
    parse_kind_and_expression,
)
from jobs.domain import limits
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.recurrence import CatchUp
from jobs.scheduling.schedules import FIELD_OF_KIND


class RequirementsEditInput(PartialInput, RequirementsInput):
    """Omitted fields stay unchanged."""


class ScheduleEditInput(PartialInput, ScheduleInput):
    """With an `id`, changes to that schedule; without, a new schedule with defaults for omitted fields."""

    id = StrictUUIDField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "id" in attrs and not any(name in attrs for name in FIELD_OF_KIND.values()):
            return attrs
        return super().validate(attrs)


class JobEditInput(PartialInput, JobInput):
    schedules = ScheduleEditInput(many=True, max_length=limits.MAX_SCHEDULES_PER_JOB)  # type: ignore[call-arg]  # of the list
    requirements = RequirementsEditInput()
    retry = RetryInput(help_text="Omitted fields stay unchanged.")


def build_job_edit(values: Mapping[str, Any]) -> JobEdit:
    fields = convert_job_fields(values)
    if "schedules" in fields:
        fields["schedules"] = [_build_schedule_edit(schedule) for schedule in fields["schedules"]]
    return JobEdit(**fields)


def _build_schedule_edit(values: Mapping[str, Any]) -> ScheduleEdit:
    fields = {name: value for name, value in values.items() if name not in FIELD_OF_KIND.values()}
    if len(fields) < len(values):
        fields["kind"], fields["expression"] = parse_kind_and_expression(values)
    if "catch_up" in fields:
        fields["catch_up"] = CatchUp(fields["catch_up"])
    return ScheduleEdit(**fields)
