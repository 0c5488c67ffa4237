"""Specification of a job as values, and the rules that need neither database nor clock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from jobs.domain import limits
from jobs.domain.choices import Condition, Delivery, Overlap
from jobs.domain.errors import InvalidInput
from jobs.domain.packing import is_resource_name
from jobs.domain.recurrence import CatchUp, Kind
from jobs.domain.retry_policy import DEFAULT_RETRY_POLICY, RetryPolicy
from jobs.domain.text_validation import UNREADABLE_NAME_MESSAGE, is_readable_name, is_safe_path

# Runtimes that workers know (workers/sandbox/runtimes.py); each worker offers those that are installed.
RUNTIMES = (
    "bash", "binary", "bun", "deno", "java", "lua", "node", "perl", "php", "python", "r", "ruby", "sh",
)  # fmt: skip
# Punctual's variables name the execution and the attempt: a job must not fake them.
RESERVED_ENV_PREFIX = "PUNCTUAL_"
ENV_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
CAPABILITY_PATTERN = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,62}\Z")
# Reserved in a run's directory: the output directory, and the program, whose suffix depends on the runtime.
OUTPUT_DIR, PROGRAM = "out", "program"


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
    calendar: str | None = None  # id or name of one of the owner's calendars, whose dates are excluded too
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class DependencySpec:
    job: UUID
    condition: Condition = Condition.SUCCESS


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A file placed at this path of the program's directory."""

    path: str
    artifact: UUID


@dataclass(frozen=True, slots=True)
class SecretSpec:
    """A secret of the job's owner, passed in a variable or in a file at this path."""

    name: str
    env: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Requirements:
    cpu: float = 0.25
    memory_mb: int = 128
    disk_mb: int = 64
    capabilities: Sequence[str] = ()
    resources: Mapping[str, int] = field(default_factory=dict)  # custom resources that workers count, by name


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
    team: str | None = None  # name of one of the owner's teams, whose members may read and operate the job
    requirements: Requirements = field(default_factory=Requirements)
    timeout_seconds: float = 3600
    deadline_seconds: float | None = None  # for all attempts together; None: no deadline
    retry: RetryPolicy = DEFAULT_RETRY_POLICY
    max_concurrency: int | None = 1
    overlap: Overlap = Overlap.QUEUE
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    network: bool = False


def check_spec(spec: JobSpec) -> None:
    """Raise InvalidInput for the first rule that the spec breaks."""
    if not is_readable_name(spec.name):
        raise InvalidInput("name", UNREADABLE_NAME_MESSAGE)
    if spec.runtime not in RUNTIMES:
        raise InvalidInput("runtime", f"The runtime must be one of {', '.join(RUNTIMES)}.")
    _check_counts(spec)
    _check_program(spec)
    _check_texts(spec.args, spec.env)
    _check_stdin(spec)
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
        if not CAPABILITY_PATTERN.match(capability):
            raise InvalidInput(
                "requirements.capabilities",
                "A capability is lower-case letters, digits and . _ : -, at most 63 characters.",
            )
    _check_resources(spec.requirements.resources)
    if len({d.job for d in spec.dependencies}) != len(spec.dependencies):
        raise InvalidInput("dependencies", "A job is named twice as a dependency; name it once.")


def _check_counts(spec: JobSpec) -> None:
    resources = spec.requirements.resources
    for field_name, items, limit, noun in (
        ("args", spec.args, limits.MAX_ARGS, "arguments"),
        ("env", spec.env, limits.MAX_ENV_VARIABLES, "environment variables"),
        ("inputs", spec.inputs, limits.MAX_INPUTS, "input files"),
        ("secrets", spec.secrets, limits.MAX_SECRETS_PER_JOB, "secrets"),
        ("requirements.resources", resources, limits.MAX_RESOURCES, "resources"),
        ("schedules", spec.schedules, limits.MAX_SCHEDULES_PER_JOB, "schedules"),
        ("dependencies", spec.dependencies, limits.MAX_DEPENDENCIES_PER_JOB, "dependencies"),
    ):
        if len(items) > limit:
            raise InvalidInput(field_name, f"A job may have at most {limit} {noun}.")


def _check_program(spec: JobSpec) -> None:
    if (spec.script is None) == (spec.artifact is None):
        raise InvalidInput("script", "Give the program either as script or as artifact, and not as both.")
    if spec.script is None:
        return
    if spec.runtime == "binary":
        raise InvalidInput("script", "A binary cannot be sent as text; upload it as an artifact.")
    if len(spec.script.encode()) > limits.MAX_SCRIPT_BYTES:
        raise InvalidInput(
            "script", f"The script has more than {limits.MAX_SCRIPT_BYTES} bytes; upload it as an artifact."
        )


def _check_stdin(spec: JobSpec) -> None:
    if spec.stdin is None:
        return
    if spec.stdin_artifact is not None:
        raise InvalidInput("stdin", "Give the standard input either as stdin or as stdin_artifact, and not as both.")
    if len(spec.stdin.encode()) > limits.MAX_STDIN_BYTES:
        raise InvalidInput(
            "stdin", f"The text has more than {limits.MAX_STDIN_BYTES} bytes; upload it and name it as stdin_artifact."
        )


def _check_secrets(secrets: Sequence[SecretSpec], env: Mapping[str, str]) -> None:
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
    """Check the paths of all files given to the program; each comes with its field name for errors."""
    taken: set[str] = set()
    for where, path in files:
        first = path.partition("/")[0]
        if not is_safe_path(path):
            raise InvalidInput(
                where, "Give a path inside the program's directory, such as data/a.csv: without .. and not absolute."
            )
        if first == OUTPUT_DIR or first.partition(".")[0] == PROGRAM:
            raise InvalidInput(
                where,
                f"{OUTPUT_DIR} is for what the program leaves, and {PROGRAM} is the program; choose another name.",
            )
        if path in taken:
            raise InvalidInput(where, "Two files that the program is given have this path.")
        taken.add(path)
    for where, path in files:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in taken for depth in range(1, len(parts))):
            raise InvalidInput(where, "A directory of this path is itself a file that the program is given.")


def _check_resources(resources: Mapping[str, int]) -> None:
    if not all(is_resource_name(name) for name in resources):
        raise InvalidInput(
            "requirements.resources",
            "A resource is named by lower-case letters, digits and . _ -, at most 63 characters; cpu, memory_mb,"
            " disk_mb and slots have fields of their own.",
        )


def _check_texts(args: Sequence[str], env: Mapping[str, str]) -> None:
    if sum(len(arg.encode()) for arg in args) > limits.MAX_TEXT_BYTES:
        raise InvalidInput("args", f"The arguments may have at most {limits.MAX_TEXT_BYTES} bytes together.")
    if sum(len(value.encode()) for value in env.values()) > limits.MAX_TEXT_BYTES:
        raise InvalidInput("env", f"The environment may have at most {limits.MAX_TEXT_BYTES} bytes together.")
    for name in env:
        _check_variable("env", name)


def _check_variable(where: str, name: str) -> None:
    if not ENV_NAME_PATTERN.match(name):
        raise InvalidInput(
            where, "An environment variable is named by letters, digits and _, not starting with a digit."
        )
    if name.startswith(RESERVED_ENV_PREFIX):
        raise InvalidInput(where, f"Names that start with {RESERVED_ENV_PREFIX} are Punctual's own; choose another.")
