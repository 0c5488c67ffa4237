"""What a job is asked to be, as values, and the rules that need neither the database nor the clock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from jobs import conf
from jobs.errors import InvalidInput
from jobs.models import Condition, Delivery, Overlap
from jobs.planning import is_resource_name
from jobs.recurrence import CatchUp, Kind
from jobs.retry_policy import DEFAULT_RETRY_POLICY, RetryPolicy
from jobs.storable import UNREADABLE_NAME, is_readable_name, is_safe_path

# What workers know to run (workers/sandbox/runtimes.py); each offers those that it has.
RUNTIMES = (
    "bash", "binary", "bun", "deno", "java", "lua", "node", "perl", "php", "python", "r", "ruby", "sh",
)  # fmt: skip
# Punctual's own variables tell a run its execution and attempt: a job may not pretend to be another.
RESERVED_ENV_PREFIX = "PUNCTUAL_"
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
CAPABILITY = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,62}\Z")
# What a run's directory has of its own: where its outputs go, and itself under a name that its runtime gives it.
OUTPUTS, PROGRAM = "out", "program"


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    kind: Kind
    expression: str
    timezone: str = "UTC"
    starts_at: datetime | None = None  # None: now
    ends_at: datetime | None = None
    jitter_seconds: float = 0
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window_seconds: float | None = None
    excluded_dates: Sequence[date] = ()
    calendar: str | None = None  # the id or the name of one of the owner's, whose dates are excluded too
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class DependencySpec:
    job: UUID
    condition: Condition = Condition.SUCCESS


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A file that the program finds at this path of its directory."""

    path: str
    artifact: UUID


@dataclass(frozen=True, slots=True)
class SecretSpec:
    """A secret of the job's owner that the program finds in this variable, or in a file at this path."""

    name: str
    env: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Requirements:
    cpu: float = 0.25
    memory_mb: int = 128
    disk_mb: int = 64
    capabilities: Sequence[str] = ()
    resources: Mapping[str, int] = field(default_factory=dict)  # whatever else workers count, by name


@dataclass(frozen=True, slots=True)
class JobSpec:
    name: str
    runtime: str
    script: str | None = None
    artifact: UUID | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: str | None = None
    stdin_artifact: UUID | None = None  # instead of the text
    inputs: Sequence[InputSpec] = ()
    secrets: Sequence[SecretSpec] = ()
    schedules: Sequence[ScheduleSpec] = ()
    dependencies: Sequence[DependencySpec] = ()
    priority: int = 5
    queue: str = "default"
    team: str | None = None  # the name of one of the owner's, who may look at the job and operate it
    requirements: Requirements = field(default_factory=Requirements)
    timeout_seconds: float = 3600
    deadline_seconds: float | None = None  # for all attempts together; None: no deadline
    retry: RetryPolicy = DEFAULT_RETRY_POLICY
    max_concurrency: int | None = 1
    overlap: Overlap = Overlap.QUEUE
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    network: bool = False


def check_spec(spec: JobSpec) -> None:
    """Raises InvalidInput for the first rule that the spec breaks."""
    if not is_readable_name(spec.name):
        raise InvalidInput("name", UNREADABLE_NAME)
    if spec.runtime not in RUNTIMES:
        raise InvalidInput("runtime", f"The runtime must be one of {', '.join(RUNTIMES)}.")
    _check_program(spec)
    _check_args(spec.args)
    _check_env(spec.env)
    _check_stdin(spec)
    _check_inputs(spec.inputs)
    _check_secrets(spec.secrets, spec.env)
    _check_paths(
        [(f"inputs.{index}.path", each.path) for index, each in enumerate(spec.inputs)]
        + [(f"secrets.{index}.file", each.path) for index, each in enumerate(spec.secrets) if each.path is not None]
    )
    if spec.delivery is Delivery.AT_MOST_ONCE and spec.retry.max_attempts > 1:
        raise InvalidInput(
            "retry.max_attempts", "A job that is delivered at_most_once is never tried again; leave max_attempts at 1."
        )
    for capability in spec.requirements.capabilities:
        if not CAPABILITY.match(capability):
            raise InvalidInput(
                "requirements.capabilities",
                "A capability is lower-case letters, digits and . _ : -, at most 63 characters.",
            )
    _check_resources(spec.requirements.resources)
    if len(spec.schedules) > conf.MAX_SCHEDULES_PER_JOB:
        raise InvalidInput("schedules", f"A job may have at most {conf.MAX_SCHEDULES_PER_JOB} schedules.")
    if len(spec.dependencies) > conf.MAX_DEPENDENCIES_PER_JOB:
        raise InvalidInput("dependencies", f"A job may have at most {conf.MAX_DEPENDENCIES_PER_JOB} dependencies.")
    if len({d.job for d in spec.dependencies}) != len(spec.dependencies):
        raise InvalidInput("dependencies", "A job is named twice as a dependency; name it once.")


def _check_program(spec: JobSpec) -> None:
    if (spec.script is None) == (spec.artifact is None):
        raise InvalidInput("script", "Give the program either as script or as artifact, and not as both.")
    if spec.script is None:
        return
    if spec.runtime == "binary":
        raise InvalidInput("script", "A binary cannot be sent as text; upload it as an artifact.")
    if len(spec.script.encode()) > conf.MAX_SCRIPT_BYTES:
        raise InvalidInput(
            "script", f"The script has more than {conf.MAX_SCRIPT_BYTES} bytes; upload it as an artifact."
        )


def _check_stdin(spec: JobSpec) -> None:
    if spec.stdin is None:
        return
    if spec.stdin_artifact is not None:
        raise InvalidInput("stdin", "Give the standard input either as stdin or as stdin_artifact, and not as both.")
    if len(spec.stdin.encode()) > conf.MAX_STDIN_BYTES:
        raise InvalidInput(
            "stdin", f"The text has more than {conf.MAX_STDIN_BYTES} bytes; upload it and name it as stdin_artifact."
        )


def _check_inputs(inputs: Sequence[InputSpec]) -> None:
    if len(inputs) > conf.MAX_INPUTS:
        raise InvalidInput("inputs", f"A job may have at most {conf.MAX_INPUTS} input files.")


def _check_secrets(secrets: Sequence[SecretSpec], env: Mapping[str, str]) -> None:
    if len(secrets) > conf.MAX_SECRETS_PER_JOB:
        raise InvalidInput("secrets", f"A job may be given at most {conf.MAX_SECRETS_PER_JOB} secrets.")
    taken = set(env)
    for index, each in enumerate(secrets):
        if (each.env is None) == (each.path is None):
            raise InvalidInput(f"secrets.{index}", "A secret is given either as env or as file, and not as both.")
        if each.env is None:
            continue
        _check_variable(f"secrets.{index}.env", each.env)
        if each.env in taken:
            raise InvalidInput(f"secrets.{index}.env", "This variable is given twice, here or in env; give it once.")
        taken.add(each.env)


def _check_paths(files: Sequence[tuple[str, str]]) -> None:
    """Of all files that the program is given, each with the field that it came in."""
    taken: set[str] = set()
    for where, path in files:
        first = path.partition("/")[0]
        if not is_safe_path(path):
            raise InvalidInput(
                where, "Give a path inside the program's directory, such as data/a.csv: without .. and not absolute."
            )
        if first == OUTPUTS or first.partition(".")[0] == PROGRAM:
            raise InvalidInput(
                where, f"{OUTPUTS} is for what the program leaves, and {PROGRAM} is the program; choose another name."
            )
        if path in taken:
            raise InvalidInput(where, "Two files that the program is given have this path.")
        taken.add(path)
    for where, path in files:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in taken for depth in range(1, len(parts))):
            raise InvalidInput(where, "A directory of this path is itself a file that the program is given.")


def _check_resources(resources: Mapping[str, int]) -> None:
    if len(resources) > conf.MAX_RESOURCES:
        raise InvalidInput("requirements.resources", f"A job may name at most {conf.MAX_RESOURCES} resources.")
    if not all(is_resource_name(name) for name in resources):
        raise InvalidInput(
            "requirements.resources",
            "A resource is named by lower-case letters, digits and . _ -, at most 63 characters; cpu, memory_mb,"
            " disk_mb and slots have fields of their own.",
        )


def _check_args(args: Sequence[str]) -> None:
    if len(args) > conf.MAX_ARGS:
        raise InvalidInput("args", f"A job may have at most {conf.MAX_ARGS} arguments.")
    if sum(len(arg.encode()) for arg in args) > conf.MAX_TEXT_BYTES:
        raise InvalidInput("args", f"The arguments may have at most {conf.MAX_TEXT_BYTES} bytes together.")


def _check_env(env: Mapping[str, str]) -> None:
    if len(env) > conf.MAX_ENV:
        raise InvalidInput("env", f"A job may have at most {conf.MAX_ENV} environment variables.")
    if sum(len(value.encode()) for value in env.values()) > conf.MAX_TEXT_BYTES:
        raise InvalidInput("env", f"The environment may have at most {conf.MAX_TEXT_BYTES} bytes together.")
    for name in env:
        _check_variable("env", name)


def _check_variable(where: str, name: str) -> None:
    if not ENV_NAME.match(name):
        raise InvalidInput(
            where, "An environment variable is named by letters, digits and _, not starting with a digit."
        )
    if name.startswith(RESERVED_ENV_PREFIX):
        raise InvalidInput(where, f"Names that start with {RESERVED_ENV_PREFIX} are Punctual's own; choose another.")
