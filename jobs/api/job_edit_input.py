"""The body of PATCH /jobs/{id}: that of POST /jobs, of which anything may be left out and then stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from jobs import conf
from jobs.api.fields import IdField, StrictSerializer
from jobs.api.job_input import JobInput, RequirementsInput, RetryInput, ScheduleInput, kind_and_expression, secret_spec
from jobs.models import Condition, Delivery, Overlap
from jobs.recurrence import CatchUp
from jobs.services.job_edit import JobEdit, ScheduleEdit
from jobs.services.job_spec import DependencySpec, InputSpec
from jobs.services.schedules import KIND_FIELDS

Fields = dict[str, serializers.Field[Any, Any, Any, Any]]


class WithoutDefaults(StrictSerializer):
    """A default would overwrite what was not named."""

    def get_fields(self) -> Fields:
        fields: Fields = super().get_fields()
        for field in fields.values():
            field.required, field.default = False, empty
        return fields


class RequirementsEditInput(WithoutDefaults, RequirementsInput):
    """What is left out stays as it is."""


class ScheduleEditInput(WithoutDefaults, ScheduleInput):
    """With an id: what changes of that schedule. Without: a new one, with the defaults for what is left out."""

    id = IdField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "id" in attrs and not any(name in attrs for name in KIND_FIELDS.values()):
            return attrs
        return super().validate(attrs)


class JobEditInput(WithoutDefaults, JobInput):
    schedules = ScheduleEditInput(many=True, max_length=conf.MAX_SCHEDULES_PER_JOB)  # type: ignore[call-arg]  # of the list
    requirements = RequirementsEditInput()
    retry = RetryInput(help_text="What is left out stays as it is.")


def job_edit(values: Mapping[str, Any]) -> JobEdit:
    given = dict(values)
    if "schedules" in given:
        given["schedules"] = [_schedule_edit(schedule) for schedule in given["schedules"]]
    if "dependencies" in given:
        given["dependencies"] = [DependencySpec(d["job"], Condition(d["condition"])) for d in given["dependencies"]]
    if "inputs" in given:
        given["inputs"] = [InputSpec(**each) for each in given["inputs"]]
    if "secrets" in given:
        given["secrets"] = [secret_spec(each) for each in given["secrets"]]
    for name, kind in (("overlap", Overlap), ("delivery", Delivery)):
        if name in given:
            given[name] = kind(given[name])
    return JobEdit(**given)


def _schedule_edit(values: Mapping[str, Any]) -> ScheduleEdit:
    given = {name: value for name, value in values.items() if name not in KIND_FIELDS.values()}
    if len(given) < len(values):
        given["kind"], given["expression"] = kind_and_expression(values)
    if "catch_up" in given:
        given["catch_up"] = CatchUp(given["catch_up"])
    return ScheduleEdit(**given)
