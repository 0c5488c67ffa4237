"""`submit`: a file becomes a job.

Only what was given is sent: every default is the server's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cli.app import app, connect, resolve_job
from cli.client import Client
from cli.commands.options import WaitLimitOption, WaitOption
from cli.errors import UsageMistakeError
from cli.following import EXIT_INTERRUPTED, first_execution, wait_and_exit
from cli.programs import Runtime, prepare_program
from cli.records import Job
from cli.terminal import say, shown_time, write_result
from cli.values import parse_after, parse_assignment, parse_duration, parse_instant, parse_zone


@app.command()
def submit(  # noqa: PLR0917  each is an option of the command line
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A script or a compiled program.", dir_okay=False)],
    name: Annotated[str | None, typer.Option(help="Default: the file's name.")] = None,
    runtime: Annotated[Runtime | None, typer.Option(help="Default: guessed from the file.")] = None,
    arg: Annotated[list[str] | None, typer.Option(help="An argument of the program (repeat).")] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A variable of its environment (repeat).")
    ] = None,
    every: Annotated[list[str] | None, typer.Option(metavar="DURATION", help="Run every 30s, 5m, 1h (repeat).")] = None,
    cron: Annotated[
        list[str] | None, typer.Option(metavar="EXPRESSION", help='Run as cron says, "0 3 * * *" (repeat).')
    ] = None,
    at: Annotated[list[str] | None, typer.Option(metavar="TIME", help="Run at this time, ISO 8601 (repeat).")] = None,
    tz: Annotated[str | None, typer.Option(metavar="ZONE", help="The zone of --cron and --at.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:CONDITION]",
            help="Run after this job: on success (default), failure or completion (repeat).",
        ),
    ] = None,
    cpu: Annotated[float | None, typer.Option(min=0, help="Processor cores.")] = None,
    memory: Annotated[int | None, typer.Option(min=1, metavar="MB", help="Memory.")] = None,
    disk: Annotated[int | None, typer.Option(min=1, metavar="MB", help="Disk.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Kill a try after this long.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=9, help="9 goes first.")] = None,
    queue: Annotated[str | None, typer.Option(help="The queue it waits in.")] = None,
    retries: Annotated[int | None, typer.Option(min=0, help="Tries after a first that failed.")] = None,
    backoff: Annotated[str | None, typer.Option(metavar="DURATION", help="Wait before a retry.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="Executions at the same time.")] = None,
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
) -> None:
    """Submit FILE as a job: now, or when --every, --cron, --at or --after say. Prints the job's id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    if tz is not None and not (cron or at):
        raise UsageMistakeError("--tz has no meaning without --cron or --at.")
    if backoff is not None and not retries:
        raise UsageMistakeError("--backoff has no meaning without --retries.")
    requirements = _given(cpu=cpu, memory_mb=memory, disk_mb=disk)
    specification = _given(
        name=name or file.stem,
        args=arg or None,
        env=dict(parse_assignment(word) for word in env or []) or None,
        schedules=_schedules(every or [], cron or [], at or [], tz) or None,
        requirements=requirements or None,
        timeout_seconds=None if timeout is None else parse_duration(timeout),
        priority=priority,
        queue=queue,
        retry=_retry(retries, backoff),
        max_concurrency=max_concurrency,
    )
    upstreams = [parse_after(word) for word in after or []]
    with connect() as client:
        if upstreams:
            specification["dependencies"] = [
                {"job": resolve_job(client, upstream.job), "condition": upstream.condition} for upstream in upstreams
            ]
        specification |= prepare_program(client, file, runtime)
        job = client.submit_job(specification)
        say(f"Submitted {job.name}.{_when(job)}")
        if not wait:
            write_result(job.id)
            return
        _wait_for(client, job, deadline)


def _schedules(every: list[str], cron: list[str], at: list[str], tz: str | None) -> list[dict[str, object]]:
    zone = None if tz is None else parse_zone(tz)
    schedules: list[dict[str, object]] = [{"every_seconds": parse_duration(word)} for word in every]
    schedules += [_given(cron=word, timezone=tz) for word in cron]
    schedules += [{"at": parse_instant(word, zone)} for word in at]
    return schedules


def _retry(retries: int | None, backoff: str | None) -> dict[str, object] | None:
    if retries is None:
        return None
    # The server counts tries, of which the first is no retry.
    return _given(max_attempts=retries + 1, backoff_seconds=None if backoff is None else parse_duration(backoff))


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _when(job: Job) -> str:
    return f" Next run: {shown_time(job.next_instants[0])}." if job.next_instants else ""


def _wait_for(client: Client, job: Job, deadline: float) -> None:
    try:
        execution = first_execution(client, job.id, deadline=deadline)
    except KeyboardInterrupt:
        say(f"Stopped waiting; the job stays: ./punctual show {job.id}")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    wait_and_exit(client, execution.id, deadline=deadline)
