"""Body of POST /jobs: checks its shape; the definitions package checks its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from jobs.api.framework.fields import (
    MAX_INT32,
    BoundedDictField,
    BoundedListField,
    InstantField,
    NumberField,
    OneOfField,
    StrictBooleanField,
    StrictDateField,
    StrictIntegerField,
    StrictSerializer,
    StrictUUIDField,
    TextField,
)
from jobs.domain import limits
from jobs.domain.choices import Condition, Delivery, Overlap
from jobs.domain.job_spec import RUNTIMES, DependencySpec, InputSpec, JobSpec, Requirements, ScheduleSpec, SecretSpec
from jobs.domain.packing import MAX_AMOUNT
from jobs.domain.recurrence import MAX_EXCLUDED_DATES, CatchUp, Kind
from jobs.domain.retry_policy import RETRY_REASONS, parse_retry_policy
from jobs.domain.text_validation import MAX_PATH_LENGTH
from jobs.scheduling.schedules import FIELD_OF_KIND

DAY_SECONDS = 86_400
MAX_WINDOW_SECONDS = 366 * DAY_SECONDS


class ScheduleInput(StrictSerializer):
    cron = TextField(
        required=False, help_text="Cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly."
    )
    every_seconds = NumberField(required=False, help_text="Fixed interval, counted from starts_at.")
    delay_seconds = NumberField(
        required=False, help_text="Fixed delay after the previous run has ended; the first run starts at once."
    )
    at = InstantField(required=False, help_text="Single instant.")
    solar = TextField(required=False, help_text="Solar event and coordinates, such as sunset 48.85,2.35.")
    timezone = TextField(default="UTC", max_length=64, help_text="IANA time zone, such as Europe/Paris.")
    starts_at = InstantField(default=None, allow_null=True, help_text="No instants before this time. Default: now.")
    ends_at = InstantField(default=None, allow_null=True, help_text="No instants after this time. Default: no end.")
    jitter_seconds = NumberField(
        default=0, min_value=0, max_value=DAY_SECONDS, help_text="Maximum random delay of each firing."
    )
    catch_up = OneOfField(
        [c.value for c in CatchUp],
        default=CatchUp.LATEST.value,
        help_text="Which instants fire late after a pause of the scheduler, such as an outage.",
    )
    catch_up_window_seconds = NumberField(
        default=None,
        allow_null=True,
        min_value=0,
        max_value=MAX_WINDOW_SECONDS,
        help_text="Maximum age of instants that catch up. Default: no limit.",
    )
    excluded_dates = BoundedListField(
        child=StrictDateField(),
        default=list,
        max_length=MAX_EXCLUDED_DATES,
        help_text="Dates without instants, in the schedule's time zone.",
    )
    calendar = TextField(
        default=None,
        allow_null=True,
        max_length=100,
        help_text="Id or name of a calendar, whose dates are excluded as well.",
    )
    max_count = StrictIntegerField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=MAX_INT32,
        help_text="Total number of instants. Default: no limit.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in FIELD_OF_KIND.values() if name in attrs]
        if len(given) != 1:
            message = f"A schedule has exactly one of {', '.join(FIELD_OF_KIND.values())}."
            raise serializers.ValidationError({given[1] if given else "cron": [message]})
        return attrs


class DependencyInput(StrictSerializer):
    job = StrictUUIDField()
    condition = OneOfField(list(Condition), default=Condition.SUCCESS.value)


class InputFileInput(StrictSerializer):
    path = TextField(
        max_length=MAX_PATH_LENGTH, help_text="Path of the file below the program's directory, such as data/a.csv."
    )
    artifact = StrictUUIDField(help_text="Id of an uploaded artifact.")


class SecretGrantInput(StrictSerializer):
    name = TextField(max_length=63, help_text="Name of one of your secrets.")
    env = TextField(required=False, allow_null=True, max_length=128, help_text="Environment variable for the value.")
    file = TextField(
        required=False,
        allow_null=True,
        max_length=MAX_PATH_LENGTH,
        help_text="File for the value instead of a variable, such as tls/key.pem.",
    )


class RequirementsInput(StrictSerializer):
    cpu = NumberField(default=0.25, min_value=0.01, max_value=1024)
    memory_mb = StrictIntegerField(default=128, min_value=1, max_value=MAX_INT32)
    disk_mb = StrictIntegerField(default=64, min_value=0, max_value=MAX_INT32)
    capabilities = BoundedListField(child=TextField(max_length=63), default=list, max_length=64)
    resources = BoundedDictField(
        max_length=limits.MAX_RESOURCES,
        too_many=f"A job may name at most {limits.MAX_RESOURCES} resources.",
        child=StrictIntegerField(min_value=1, max_value=MAX_AMOUNT),
        default=dict,
        help_text='Custom resources of workers, such as {"gpu": 1}.',
    )


MAX_EXIT_CODES = 256


class RetryInput(StrictSerializer):
    max_attempts = StrictIntegerField(required=False)
    backoff_seconds = NumberField(required=False)
    backoff_factor = NumberField(required=False)
    max_backoff_seconds = NumberField(required=False)
    jitter = NumberField(required=False, help_text="Share of each delay, 0 to 1, that is randomly cut off.")
    on_exit_codes = BoundedListField(
        child=StrictIntegerField(),
        required=False,
        allow_null=True,
        max_length=MAX_EXIT_CODES,
        help_text="Retry only after these exit codes; 128 + n means signal n.",
    )
    not_on_exit_codes = BoundedListField(
        child=StrictIntegerField(),
        required=False,
        allow_null=True,
        max_length=MAX_EXIT_CODES,
        help_text="Retry after all exit codes but these; instead of on_exit_codes.",
    )
    on_reasons = BoundedListField(
        child=OneOfField(RETRY_REASONS),
        max_length=MAX_EXIT_CODES,
        required=False,
        allow_null=True,
        help_text="Retry only attempts that ended for these reasons.",
    )


class JobInput(StrictSerializer):
    name = TextField(max_length=200)
    runtime = OneOfField(RUNTIMES, help_text="Interpreter of the program; `binary` for an executable.")
    script = TextField(required=False, help_text=f"Source of the program, at most {limits.MAX_SCRIPT_BYTES} bytes.")
    artifact = StrictUUIDField(required=False, help_text="Id of an uploaded artifact, instead of a script.")
    args = BoundedListField(
        child=TextField(allow_blank=True),
        default=list,
        max_length=limits.MAX_ARGS,
        help_text="Command-line arguments.",
    )
    env = BoundedDictField(
        max_length=limits.MAX_ENV_VARIABLES,
        too_many=f"A job may have at most {limits.MAX_ENV_VARIABLES} environment variables.",
        child=TextField(allow_blank=True),
        default=dict,
        help_text="Environment variables, in addition to those that Punctual sets.",
    )
    stdin = TextField(
        required=False,
        allow_null=True,
        help_text=f"Text for standard input, at most {limits.MAX_STDIN_BYTES} bytes.",
    )
    stdin_artifact = StrictUUIDField(
        required=False, allow_null=True, help_text="Id of an uploaded artifact for standard input, instead of stdin."
    )
    inputs = InputFileInput(many=True, default=list, max_length=limits.MAX_INPUTS)  # type: ignore[call-arg]
    secrets = SecretGrantInput(many=True, default=list, max_length=limits.MAX_SECRETS_PER_JOB)  # type: ignore[call-arg]
    schedules = ScheduleInput(many=True, default=list, max_length=limits.MAX_SCHEDULES_PER_JOB)  # type: ignore[call-arg]  # of the list
    dependencies = DependencyInput(many=True, default=list, max_length=limits.MAX_DEPENDENCIES_PER_JOB)  # type: ignore[call-arg]
    priority = StrictIntegerField(default=5, min_value=0, max_value=9, help_text="Priority; 9 runs first.")
    queue = TextField(default="default", max_length=63, help_text="Name of the queue.")
    team = TextField(
        default=None,
        allow_null=True,
        max_length=63,
        help_text="Name of one of your teams, whose members may read, run, pause and resume the job.",
    )
    requirements = RequirementsInput(required=False)
    timeout_seconds = NumberField(
        default=3600, min_value=0.1, max_value=limits.MAX_TIMEOUT_SECONDS, help_text="Time limit of each attempt."
    )
    deadline_seconds = NumberField(
        default=None,
        allow_null=True,
        min_value=0.1,
        max_value=MAX_WINDOW_SECONDS,
        help_text="Time limit for all attempts and waits together, from the firing on; no attempt starts later.",
    )
    retry = RetryInput(required=False)
    max_concurrency = StrictIntegerField(
        default=1,
        allow_null=True,
        min_value=1,
        max_value=MAX_INT32,
        help_text="Maximum number of concurrent executions; null for no limit.",
    )
    overlap = OneOfField(
        list(Overlap),
        default=Overlap.QUEUE.value,
        help_text="How a firing is handled while `max_concurrency` is reached.",
    )
    delivery = OneOfField(
        list(Delivery),
        default=Delivery.AT_LEAST_ONCE.value,
        help_text="Whether a run that was lost with its worker is tried again.",
    )
    network = StrictBooleanField(
        default=False, help_text="Allow runs to reach public addresses; the owner needs the permission."
    )


def build_job_spec(values: Mapping[str, Any]) -> JobSpec:
    """Build the spec from a validated body; omitted fields take the spec's defaults."""
    fields = convert_job_fields(values)
    if "requirements" in fields:
        fields["requirements"] = Requirements(**fields["requirements"])
    fields["schedules"] = [build_schedule_spec(schedule) for schedule in fields["schedules"]]
    fields["retry"] = parse_retry_policy(fields.get("retry", {}))
    return JobSpec(**fields)


def convert_job_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the validated fields that need it, both of a submission and of an edit."""
    return {name: _CONVERTERS[name](value) if name in _CONVERTERS else value for name, value in values.items()}


_CONVERTERS: Mapping[str, Callable[[Any], object]] = {
    "inputs": lambda inputs: [InputSpec(**each) for each in inputs],
    "secrets": lambda secrets: [SecretSpec(each["name"], each.get("env"), each.get("file")) for each in secrets],
    "dependencies": lambda jobs: [DependencySpec(each["job"], Condition(each["condition"])) for each in jobs],
    "overlap": Overlap,
    "delivery": Delivery,
}


def build_schedule_spec(values: Mapping[str, Any]) -> ScheduleSpec:
    kind, expression = parse_kind_and_expression(values)
    others = {name: value for name, value in values.items() if name != "id" and name not in FIELD_OF_KIND.values()}
    return ScheduleSpec(kind, expression, **others | {"catch_up": CatchUp(values["catch_up"])})


def parse_kind_and_expression(values: Mapping[str, Any]) -> tuple[Kind, str]:
    """Return kind and expression of a schedule that has exactly one of the kind fields."""
    kind = next(kind for kind, name in FIELD_OF_KIND.items() if name in values)
    value = values[FIELD_OF_KIND[kind]]
    match kind:
        case Kind.AT:
            return kind, value.isoformat()
        case Kind.EVERY | Kind.DELAY:
            # Not repr(float), which writes 1e-07 and 1e+16.
            return kind, f"{Decimal(repr(value)):f}".removesuffix(".0")
        case _:
            return kind, str(value)
