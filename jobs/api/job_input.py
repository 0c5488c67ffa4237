"""The body of POST /jobs: its shape is checked here, its rules in the service that it is handed to."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from jobs import conf
from jobs.api.fields import (
    BoundedDictField,
    BoundedListField,
    DayField,
    IdField,
    InstantField,
    NumberField,
    OneOfField,
    StrictSerializer,
    TextField,
    TruthField,
    WholeNumberField,
)
from jobs.models import Condition, Delivery, Overlap
from jobs.planning import MAX_AMOUNT
from jobs.recurrence import MAX_EXCLUDED_DATES, CatchUp, Kind
from jobs.retry_policy import RETRY_REASONS, parse_retry_policy
from jobs.services.job_spec import RUNTIMES, DependencySpec, InputSpec, JobSpec, Requirements, ScheduleSpec, SecretSpec
from jobs.services.schedules import KIND_FIELDS
from jobs.storable import MAX_PATH_LENGTH

DAY_SECONDS = 86_400
MAX_WINDOW_SECONDS = 366 * DAY_SECONDS
LARGEST_INTEGER = 2**31 - 1


class ScheduleInput(StrictSerializer):
    cron = TextField(required=False, help_text="Five fields, or @hourly, @daily, @weekly, @monthly, @yearly.")
    every_seconds = NumberField(required=False, help_text="An interval, counted from starts_at.")
    delay_seconds = NumberField(required=False, help_text="So long after the run before has ended; the first at once.")
    at = InstantField(required=False, help_text="A single instant.")
    solar = TextField(required=False, help_text="An event of the sun and a place: sunset 48.85,2.35.")
    timezone = TextField(default="UTC", max_length=64, help_text="An IANA name, such as Europe/Paris.")
    starts_at = InstantField(default=None, allow_null=True, help_text="Default: now.")
    ends_at = InstantField(default=None, allow_null=True, help_text="No instant after it. Default: without an end.")
    jitter_seconds = NumberField(
        default=0, min_value=0, max_value=DAY_SECONDS, help_text="Each instant fires up to so much later."
    )
    catch_up = OneOfField(
        [c.value for c in CatchUp],
        default=CatchUp.LATEST.value,
        help_text="Which instants that passed while nothing could fire are made up for.",
    )
    catch_up_window_seconds = NumberField(
        default=None,
        allow_null=True,
        min_value=0,
        max_value=MAX_WINDOW_SECONDS,
        help_text="Those that are older are not. Default: however old.",
    )

    excluded_dates = BoundedListField(
        child=DayField(), default=list, max_length=MAX_EXCLUDED_DATES, help_text="Dates without instants."
    )
    calendar = TextField(
        default=None, allow_null=True, max_length=100, help_text="The id or the name of a calendar: its dates as well."
    )
    max_count = WholeNumberField(
        default=None,
        allow_null=True,
        min_value=1,
        max_value=LARGEST_INTEGER,
        help_text="How many instants it has in all. Default: without end.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [name for name in KIND_FIELDS.values() if name in attrs]
        if len(given) != 1:
            message = f"A schedule has exactly one of {', '.join(KIND_FIELDS.values())}."
            raise serializers.ValidationError({given[1] if given else "cron": [message]})
        return attrs


class DependencyInput(StrictSerializer):
    job = IdField()
    condition = OneOfField(Condition.values, default=Condition.SUCCESS.value)


class InputInput(StrictSerializer):
    path = TextField(max_length=MAX_PATH_LENGTH, help_text="Where the program finds the file: data/a.csv.")
    artifact = IdField(help_text="An uploaded artifact.")


class SecretGrantInput(StrictSerializer):
    name = TextField(max_length=63, help_text="Of a secret of yours.")
    env = TextField(required=False, allow_null=True, max_length=128, help_text="The variable that holds its value.")
    file = TextField(
        required=False, allow_null=True, max_length=MAX_PATH_LENGTH, help_text="Instead: where it lies, tls/key.pem."
    )


class RequirementsInput(StrictSerializer):
    cpu = NumberField(default=0.25, min_value=0.01, max_value=1024)
    memory_mb = WholeNumberField(default=128, min_value=1, max_value=LARGEST_INTEGER)
    disk_mb = WholeNumberField(default=64, min_value=0, max_value=LARGEST_INTEGER)
    capabilities = BoundedListField(child=TextField(max_length=63), default=list, max_length=64)
    resources = BoundedDictField(
        max_length=conf.MAX_RESOURCES,
        too_many=f"A job may name at most {conf.MAX_RESOURCES} resources.",
        child=WholeNumberField(min_value=1, max_value=MAX_AMOUNT),
        default=dict,
        help_text='Whatever else workers count, by name: {"gpu": 1}.',
    )


# There are no more of them.
MAX_EXIT_CODES = 256


class RetryInput(StrictSerializer):
    max_attempts = WholeNumberField(required=False)
    backoff_seconds = NumberField(required=False)
    backoff_factor = NumberField(required=False)
    max_backoff_seconds = NumberField(required=False)
    jitter = NumberField(required=False, help_text="0 to 1: so much of each delay may be cut off at random.")
    on_exit_codes = BoundedListField(
        child=WholeNumberField(),
        required=False,
        allow_null=True,
        max_length=MAX_EXIT_CODES,
        help_text="Only these; 128 + n is signal n.",
    )
    not_on_exit_codes = BoundedListField(
        child=WholeNumberField(),
        required=False,
        allow_null=True,
        max_length=MAX_EXIT_CODES,
        help_text="Any but these; instead of on_exit_codes.",
    )
    on_reasons = BoundedListField(
        child=OneOfField(RETRY_REASONS),
        max_length=MAX_EXIT_CODES,
        required=False,
        allow_null=True,
        help_text="Only what ended so.",
    )


class JobInput(StrictSerializer):
    name = TextField(max_length=200)
    runtime = OneOfField(RUNTIMES, help_text="What runs the program; `binary`: it runs by itself.")
    script = TextField(required=False, help_text=f"The program's text, at most {conf.MAX_SCRIPT_BYTES} bytes.")
    artifact = IdField(required=False, help_text="An uploaded artifact, instead of a script.")
    args = BoundedListField(
        child=TextField(allow_blank=True),
        default=list,
        max_length=conf.MAX_ARGS,
        help_text="What the program is called with.",
    )
    env = BoundedDictField(
        max_length=conf.MAX_ENV,
        too_many=f"A job may have at most {conf.MAX_ENV} environment variables.",
        child=TextField(allow_blank=True),
        default=dict,
        help_text="Its environment, beside what Punctual puts there.",
    )
    stdin = TextField(
        required=False,
        allow_null=True,
        help_text=f"What the program reads on its standard input, at most {conf.MAX_STDIN_BYTES} bytes.",
    )
    stdin_artifact = IdField(required=False, allow_null=True, help_text="An uploaded artifact, instead of stdin.")
    inputs = InputInput(many=True, default=list, max_length=conf.MAX_INPUTS)  # type: ignore[call-arg]
    secrets = SecretGrantInput(many=True, default=list, max_length=conf.MAX_SECRETS_PER_JOB)  # type: ignore[call-arg]
    schedules = ScheduleInput(many=True, default=list, max_length=conf.MAX_SCHEDULES_PER_JOB)  # type: ignore[call-arg]  # of the list
    dependencies = DependencyInput(many=True, default=list, max_length=conf.MAX_DEPENDENCIES_PER_JOB)  # type: ignore[call-arg]
    priority = WholeNumberField(default=5, min_value=0, max_value=9, help_text="9 goes first.")
    queue = TextField(default="default", max_length=63, help_text="The name of the queue that it waits in.")
    team = TextField(
        default=None,
        allow_null=True,
        max_length=63,
        help_text="One of your teams, whose members may look at the job, run it, pause it and resume it.",
    )
    requirements = RequirementsInput(required=False)
    timeout_seconds = NumberField(
        default=3600, min_value=0.1, max_value=conf.MAX_TIMEOUT_SECONDS, help_text="For each attempt."
    )
    deadline_seconds = NumberField(
        default=None,
        allow_null=True,
        min_value=0.1,
        max_value=MAX_WINDOW_SECONDS,
        help_text="For all attempts and waits together, from when it fired; past it no attempt starts.",
    )
    retry = RetryInput(required=False)
    max_concurrency = WholeNumberField(
        default=1,
        allow_null=True,
        min_value=1,
        max_value=LARGEST_INTEGER,
        help_text="How many of its executions run at once; null: no limit.",
    )
    overlap = OneOfField(
        Overlap.values, default=Overlap.QUEUE.value, help_text="What a firing does while as many run as may."
    )
    delivery = OneOfField(
        Delivery.values,
        default=Delivery.AT_LEAST_ONCE.value,
        help_text="Whether an attempt that was lost with its worker is followed by another.",
    )
    network = TruthField(
        default=False, help_text="Whether its runs may reach public addresses; its owner needs the permission for it."
    )


def job_spec(values: Mapping[str, Any]) -> JobSpec:
    """The validated body as the service's value; what is left out takes the service's default."""
    requirements = values.get("requirements")
    return JobSpec(
        name=values["name"],
        runtime=values["runtime"],
        script=values.get("script"),
        artifact=values.get("artifact"),
        args=values["args"],
        env=values["env"],
        stdin=values.get("stdin"),
        stdin_artifact=values.get("stdin_artifact"),
        inputs=[InputSpec(**each) for each in values["inputs"]],
        secrets=[secret_spec(each) for each in values["secrets"]],
        schedules=[schedule_spec(schedule) for schedule in values["schedules"]],
        dependencies=[DependencySpec(d["job"], Condition(d["condition"])) for d in values["dependencies"]],
        priority=values["priority"],
        queue=values["queue"],
        team=values["team"],
        requirements=Requirements(**requirements) if requirements is not None else Requirements(),
        timeout_seconds=values["timeout_seconds"],
        deadline_seconds=values["deadline_seconds"],
        retry=parse_retry_policy(values.get("retry", {})),
        max_concurrency=values["max_concurrency"],
        overlap=Overlap(values["overlap"]),
        delivery=Delivery(values["delivery"]),
        network=values["network"],
    )


def secret_spec(values: Mapping[str, Any]) -> SecretSpec:
    return SecretSpec(values["name"], env=values.get("env"), path=values.get("file"))


def schedule_spec(values: Mapping[str, Any]) -> ScheduleSpec:
    kind, expression = kind_and_expression(values)
    return ScheduleSpec(
        kind=kind,
        expression=expression,
        timezone=values["timezone"],
        starts_at=values["starts_at"],
        ends_at=values["ends_at"],
        jitter_seconds=values["jitter_seconds"],
        catch_up=CatchUp(values["catch_up"]),
        catch_up_window_seconds=values["catch_up_window_seconds"],
        excluded_dates=values["excluded_dates"],
        calendar=values["calendar"],
        max_count=values["max_count"],
    )


def kind_and_expression(values: Mapping[str, Any]) -> tuple[Kind, str]:
    """Of a schedule that says exactly one of them."""
    kind = next(kind for kind, name in KIND_FIELDS.items() if name in values)
    written = values[KIND_FIELDS[kind]]
    match kind:
        case Kind.AT:
            return kind, written.isoformat()
        case Kind.EVERY | Kind.DELAY:
            # Not float's own text: that is 1e-07 or 1e+16 at the ends.
            return kind, f"{Decimal(repr(written)):f}".removesuffix(".0")
        case _:
            return kind, str(written)
