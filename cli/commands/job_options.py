"""The options that say what a job is, and what they become in a request; `submit` and `edit` share them.

Only what was given is sent: every default is the server's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import resolve_job
from cli.completion import job_names
from cli.errors import UsageMistakeError
from cli.programs import Runtime
from cli.values import parse_after, parse_assignment, parse_duration, parse_grant, parse_instant, parse_zone

if TYPE_CHECKING:
    from cli.client import Client

RuntimeOption = Annotated[Runtime | None, typer.Option(help="Default: guessed from the file.")]
ArgOption = Annotated[list[str] | None, typer.Option(metavar="WORD", help="An argument of the program (repeat).")]
EnvOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable of its environment (repeat).")
]
StdinOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What the program reads on standard input.", dir_okay=False)
]
InputOption = Annotated[
    list[str] | None, typer.Option("--input", metavar="PATH=FILE", help="A file that the program finds there (repeat).")
]
SecretOption = Annotated[
    list[str] | None, typer.Option("--secret", metavar="VAR=NAME", help="A secret, in this variable (repeat).")
]
SecretFileOption = Annotated[
    list[str] | None, typer.Option("--secret-file", metavar="PATH=NAME", help="A secret, in a file there (repeat).")
]
EveryOption = Annotated[list[str] | None, typer.Option(metavar="DURATION", help="Run every 30s, 5m, 1h (repeat).")]
CronOption = Annotated[
    list[str] | None, typer.Option(metavar="EXPRESSION", help='Run as cron says, "0 3 * * *" (repeat).')
]
AtOption = Annotated[list[str] | None, typer.Option(metavar="TIME", help="Run at this time, ISO 8601 (repeat).")]
ZoneOption = Annotated[str | None, typer.Option(metavar="ZONE", help="The zone of --cron and --at.")]
CalendarOption = Annotated[
    str | None, typer.Option(metavar="CALENDAR", help='Not on the dates of this calendar (id or name; "": of none).')
]
AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOB[:CONDITION]",
        help="Run after this job: on success (default), failure or completion (repeat).",
        autocompletion=job_names,
    ),
]
CpuOption = Annotated[float | None, typer.Option(metavar="CORES", min=0, help="Processor cores.")]
MemoryOption = Annotated[int | None, typer.Option(min=1, metavar="MB", help="Memory.")]
DiskOption = Annotated[int | None, typer.Option(min=1, metavar="MB", help="Disk.")]
ResourceOption = Annotated[
    list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="Whatever else workers count, gpu=1 (repeat).")
]
TimeoutOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Kill a try after this long.")]
DeadlineOption = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Start no try later than this after it fired.")
]
PriorityOption = Annotated[int | None, typer.Option(metavar="N", min=0, max=9, help="9 goes first.")]
QueueOption = Annotated[str | None, typer.Option(metavar="QUEUE", help="The queue it waits in.")]
TeamOption = Annotated[
    str | None, typer.Option(metavar="TEAM", help='Its members may see and run it, and not edit it ("": none).')
]
RetriesOption = Annotated[int | None, typer.Option(metavar="N", min=0, help="Tries after a first that failed.")]
BackoffOption = Annotated[str | None, typer.Option(metavar="DURATION", help="Wait before a retry.")]
RetryOnOption = Annotated[
    list[int] | None, typer.Option(min=1, max=255, metavar="CODE", help="Retry only this exit code (repeat).")
]
ConcurrencyOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Executions at the same time.")]
NetworkOption = Annotated[
    bool | None, typer.Option("--network/--no-network", help="Its runs may reach public addresses; needs permission.")
]


def specification_of(  # noqa: PLR0917  each is an option of the command line
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
    shared = {} if team is None else {"team": team or None}
    return shared | given(
        args=arg or None,
        env=dict(parse_assignment(word) for word in env or []) or None,
        requirements=given(cpu=cpu, memory_mb=memory, disk_mb=disk, resources=resources_of(resource)) or None,
        timeout_seconds=None if timeout is None else parse_duration(timeout),
        deadline_seconds=None if deadline is None else parse_duration(deadline),
        priority=priority,
        queue=queue,
        max_concurrency=max_concurrency,
        network=network,
    )


def resources_of(words: list[str] | None) -> dict[str, int] | None:
    amounts = {}
    for word in words or []:
        name, _, amount = word.partition("=")
        if not name or not amount.isdecimal():
            raise UsageMistakeError(f"{word!r} is not a resource: write it as NAME=AMOUNT, such as gpu=1.")
        amounts[name] = int(amount)
    return amounts or None


def secrets_of(variables: list[str] | None, files: list[str] | None) -> list[dict[str, object]]:
    grants = [(parse_grant(word, place="VAR"), "env") for word in variables or []]
    grants += [(parse_grant(word, place="PATH"), "file") for word in files or []]
    return [{"name": name, kind: where} for (where, name), kind in grants]


def schedules_of(
    every: Sequence[str], cron: Sequence[str], at: Sequence[str], tz: str | None, calendar: str | None
) -> list[dict[str, object]]:
    if tz is not None and not (cron or at):
        raise UsageMistakeError("--tz has no meaning without --cron or --at.")
    zone = None if tz is None else parse_zone(tz)
    schedules: list[dict[str, object]] = [{"every_seconds": parse_duration(word)} for word in every]
    schedules += [given(cron=word, timezone=tz) for word in cron]
    schedules += [{"at": parse_instant(word, zone)} for word in at]
    return [schedule | calendar_of(calendar) for schedule in schedules]


def calendar_of(calendar: str | None) -> dict[str, object]:
    """Nothing if it was not given; an empty word takes the calendar away."""
    return {} if calendar is None else {"calendar": calendar or None}


def retry_of(retries: int | None, backoff: str | None, retry_on: list[int] | None) -> dict[str, object]:
    # The server counts tries, of which the first is no retry.
    return given(
        max_attempts=None if retries is None else retries + 1,
        backoff_seconds=None if backoff is None else parse_duration(backoff),
        on_exit_codes=retry_on or None,
    )


def dependencies_of(client: Client, after: Sequence[str]) -> list[dict[str, object]]:
    upstreams = [parse_after(word) for word in after]
    return [{"job": resolve_job(client, upstream.job), "condition": upstream.condition} for upstream in upstreams]


def given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
