"""Options that define a job, shared by `submit` and `edit`, and their conversion to request fields.

Only given options are sent: every default is the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import resolve_job_id
from punctual_cli.argument_parsing import (
    parse_assignment,
    parse_dependency,
    parse_duration,
    parse_input,
    parse_instant,
    parse_secret_grant,
    parse_timezone,
)
from punctual_cli.commands.completion import complete_job_name
from punctual_client.errors import UsageError
from punctual_client.programs import Runtime
from punctual_client.resources.base import omit_none

if TYPE_CHECKING:
    from punctual_client.client import Client

RuntimeOption = Annotated[Runtime | None, typer.Option(help="Runtime. Default: guessed from the file.")]
ArgOption = Annotated[list[str] | None, typer.Option(metavar="WORD", help="Argument of the program (repeatable).")]
EnvOption = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Environment variable (repeatable).")]
StdinOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File for the program's standard input.", dir_okay=False)
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="PATH=FILE", help="File that the program finds at PATH (repeatable)."),
]
SecretOption = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="VAR=NAME", help="Secret NAME, in this environment variable (repeatable)."),
]
SecretFileOption = Annotated[
    list[str] | None,
    typer.Option("--secret-file", metavar="PATH=NAME", help="Secret NAME, in a file at PATH (repeatable)."),
]
EveryOption = Annotated[
    list[str] | None, typer.Option(metavar="DURATION", help="Run at an interval: 30s, 5m, 1h (repeatable).")
]
CronOption = Annotated[
    list[str] | None, typer.Option(metavar="EXPRESSION", help='Run on a cron schedule: "0 3 * * *" (repeatable).')
]
AtOption = Annotated[list[str] | None, typer.Option(metavar="TIME", help="Run at this time, in ISO 8601 (repeatable).")]
TimezoneOption = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="Time zone of --cron and --at. Default: UTC for --cron, local time for --at."),
]
CalendarOption = Annotated[
    str | None,
    typer.Option(metavar="CALENDAR", help='Do not run on the dates of this calendar (name or id; "" for none).'),
]
AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOB[:CONDITION]",
        help="Run after this job: on success (default), failure or completion (repeatable).",
        autocompletion=complete_job_name,
    ),
]
CpuOption = Annotated[float | None, typer.Option(metavar="CORES", min=0, help="CPU cores to reserve.")]
MemoryOption = Annotated[int | None, typer.Option(min=1, metavar="MB", help="Memory, in MB.")]
DiskOption = Annotated[int | None, typer.Option(min=1, metavar="MB", help="Disk space, in MB.")]
ResourceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=AMOUNT", help="Custom resource that workers offer, such as gpu=1 (repeatable)."),
]
TimeoutOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Kill an attempt after this long.")]
DeadlineOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Start no attempt later than this after firing.")
]
PriorityOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, max=9, help="Priority, 0 to 9; higher goes first.")
]
QueueOption = Annotated[str | None, typer.Option(metavar="QUEUE", help="Queue.")]
TeamOption = Annotated[
    str | None,
    typer.Option(metavar="TEAM", help='Team whose members may see and run it, but not edit it ("" for none).'),
]
RetriesOption = Annotated[int | None, typer.Option(metavar="N", min=0, help="Number of retries after a failure.")]
BackoffOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Delay before the first retry.")]
RetryOnOption = Annotated[
    list[int] | None, typer.Option(min=1, max=255, metavar="CODE", help="Retry only on this exit code (repeatable).")
]
ConcurrencyOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Limit of concurrent executions.")]
NetworkOption = Annotated[
    bool | None,
    typer.Option("--network/--no-network", help="Allow its runs to reach public addresses; needs permission."),
]


def build_specification(  # noqa: PLR0917  one parameter per option
    arg: list[str] | None,
    env: list[str] | None,
    cpu: float | None,
    memory: int | None,
    disk: int | None,
    resource: list[str] | None,
    timeout: str | None,
    deadline: str | None,
    priority: int | None,
    queue: str | None,
    team: str | None,
    max_concurrency: int | None,
    network: bool | None,
) -> dict[str, object]:
    sharing: dict[str, object] = {} if team is None else {"team": team or None}
    return sharing | omit_none(
        args=arg or None,
        env=dict(parse_assignment(word) for word in env or []) or None,
        requirements=omit_none(cpu=cpu, memory_mb=memory, disk_mb=disk, resources=parse_resources(resource)) or None,
        timeout_seconds=None if timeout is None else parse_duration(timeout),
        deadline_seconds=None if deadline is None else parse_duration(deadline),
        priority=priority,
        queue=queue,
        max_concurrency=max_concurrency,
        network=network,
    )


def parse_resources(words: list[str] | None) -> dict[str, int] | None:
    amounts = {}
    for word in words or []:
        name, _, amount = word.partition("=")
        if not name or not amount.isdecimal():
            raise UsageError(f"{word!r} is not a resource: write it as NAME=AMOUNT, such as gpu=1.")
        amounts[name] = int(amount)
    return amounts or None


def parse_secret_grants(variables: list[str] | None, files: list[str] | None) -> list[dict[str, object]]:
    grants = [(parse_secret_grant(word, place="VAR"), "env") for word in variables or []]
    grants += [(parse_secret_grant(word, place="PATH"), "file") for word in files or []]
    return [{"name": name, kind: where} for (where, name), kind in grants]


def build_schedules(
    every: Sequence[str], cron: Sequence[str], at: Sequence[str], tz: str | None, calendar: str | None
) -> list[dict[str, object]]:
    if tz is not None and not (cron or at):
        raise UsageError("--tz has no meaning without --cron or --at.")
    zone = None if tz is None else parse_timezone(tz)
    schedules: list[dict[str, object]] = [{"every_seconds": parse_duration(word)} for word in every]
    schedules += [omit_none(cron=word, timezone=tz) for word in cron]
    schedules += [{"at": parse_instant(word, zone)} for word in at]
    return [schedule | calendar_fields(calendar) for schedule in schedules]


def calendar_fields(calendar: str | None) -> dict[str, object]:
    """Return nothing if no calendar was given; an empty word removes it."""
    return {} if calendar is None else {"calendar": calendar or None}


def build_retry_policy(retries: int | None, backoff: str | None, retry_on: list[int] | None) -> dict[str, object]:
    # The server counts attempts, including the first.
    return omit_none(
        max_attempts=None if retries is None else retries + 1,
        backoff_seconds=None if backoff is None else parse_duration(backoff),
        on_exit_codes=retry_on or None,
    )


def resolve_dependencies(client: Client, after: Sequence[str]) -> list[dict[str, object]]:
    upstreams = [parse_dependency(word) for word in after]
    return [{"job": resolve_job_id(client, upstream.job), "condition": upstream.condition} for upstream in upstreams]


def parse_input_options(
    stdin: Path | None, inputs: Sequence[str] | None, *, no_stdin: bool = False, no_inputs: bool = False
) -> list[tuple[str, str]]:
    """Parse `--input`, and refuse contradicting options before anything is sent."""
    if no_stdin and stdin is not None:
        raise UsageError("--no-stdin cannot be combined with --stdin.")
    if no_inputs and inputs:
        raise UsageError("--no-inputs cannot be combined with --input.")
    return [parse_input(word) for word in inputs or []]
