"""`jobs`, `show`, `run`, `next`, `pause`, `resume`, `backfill` and `cancel`."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from punctual_cli.app import (
    app,
    check_execution_id,
    connect,
    find_job,
    find_job_by_name,
    resolve_job_id,
    resolve_worker_id,
)
from punctual_cli.argument_parsing import is_uuid, parse_duration, parse_time
from punctual_cli.commands.completion import complete_job_name
from punctual_cli.commands.options import (
    FormatOption,
    JobArgument,
    LimitOption,
    ResultFormatOption,
    WaitLimitOption,
    WaitOption,
    YesOption,
)
from punctual_cli.following import wait_and_exit
from punctual_cli.output.attempt_lines import format_attempt, format_event, warn_about_problems
from punctual_cli.output.results import (
    Column,
    Format,
    flatten,
    raw_field,
    time_field,
    write_fields,
    write_list,
    write_object,
    write_resource,
)
from punctual_cli.output.terminal import confirm, format_time, write_message
from punctual_client.errors import PROGRAM, ApiError, UsageError
from punctual_client.json_fields import as_objects, optional_text_field
from punctual_client.resources.executions import Execution

if TYPE_CHECKING:
    from punctual_client.client import Client
    from punctual_client.resources.jobs import Backfill, Instant, Job


def _describe_schedules(job: Job) -> str:
    schedules = as_objects(job.raw.get("schedules") or [])
    return "; ".join(optional_text_field(schedule, "in_words") or "in quarantine" for schedule in schedules)


COLUMNS: tuple[Column[Job], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("NAME", raw_field("name")),
    Column("STATUS", raw_field("status")),
    Column("NEXT RUN", lambda job: format_time(next(iter(job.next_instants), None)), drop_order=1),
    Column("OWNER", raw_field("owner"), wide=True, shown_if_varied=True),
    Column("TEAM", raw_field("team"), wide=True),
    Column("QUEUE", raw_field("queue"), wide=True),
    Column("PRIORITY", raw_field("priority"), wide=True),
    Column("RUNTIME", raw_field("runtime"), wide=True),
    Column("SCHEDULES", _describe_schedules, wide=True),
    Column("VERSION", raw_field("version"), wide=True),
    Column("CREATED", time_field("created_at"), wide=True),
    Column("NOTE", raw_field("paused_note"), wide=True),
)
INSTANT_COLUMNS: tuple[Column[Instant], ...] = (
    Column("AT", time_field("at")),
    Column("LOCAL", time_field("local")),
    Column("NOTE", raw_field("note")),
)
BACKFILL_COLUMNS: tuple[Column[Backfill], ...] = (
    Column("ID", raw_field("id"), whole=True),
    Column("STATUS", raw_field("status")),
    Column("DONE", lambda backfill: f"{backfill.done}/{backfill.expected}"),
    Column("FROM", time_field("from")),
    Column("TO", time_field("to")),
    Column("BY", raw_field("requested_by")),
    Column("REQUESTED", time_field("created_at")),
    Column("ENDED", time_field("ended_at"), wide=True),
    Column("REACHED", time_field("cursor"), wide=True),
    Column("JOB ID", raw_field("job_id"), wide=True),
)


@app.command()
def jobs(  # noqa: PLR0917  one parameter per option
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Filter by status, such as running.")] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="Filter by queue.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", min=0, max=9, help="Filter by priority.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Filter by owner.")] = None,
    team: Annotated[str | None, typer.Option(metavar="TEAM", help="Filter by the team a job is shared with.")] = None,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="Filter by a part of the name.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List jobs, newest first."""
    with connect() as client:
        found = client.jobs(
            status=status, queue=queue, priority=priority, owner=owner, team=team, search=search, limit=limit
        )
    filtered = any((status, queue, owner, team, search)) or priority is not None
    if_empty = "No job matches." if filtered else f"No jobs yet: {PROGRAM} submit FILE makes one."
    write_list(found, COLUMNS, output, if_empty=if_empty)


@app.command()
def show(
    target: Annotated[
        str,
        typer.Argument(
            metavar="JOB|EXECUTION", help="Job name or id, or execution id.", autocompletion=complete_job_name
        ),
    ],
    output: FormatOption = Format.TABLE,
) -> None:
    """Show all details of a job or an execution.

    The attempts and events of an execution take a line each; -o wide shows all their fields.
    """
    with connect() as client:
        found = _job_or_execution(client, target) if is_uuid(target) else client.job(resolve_job_id(client, target))
        if isinstance(found, Execution):
            _write_execution(client, found, output)
        else:
            write_object(found.raw, output)


@app.command()
def run(
    job: JobArgument,
    worker: Annotated[str | None, typer.Option(metavar="WORKER", help="Run on this worker only (name or id).")] = None,
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
    output: ResultFormatOption = None,
) -> None:
    """Run a job now, independently of its schedules. Prints the execution's id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    with connect() as client:
        worker_id = None if worker is None else resolve_worker_id(client, worker)
        named = None if is_uuid(job) else find_job_by_name(client, job)
        execution = client.execute_job(job if named is None else named.id, worker_id=worker_id)
        if named is not None:
            write_message(f"Running {named.name_and_owner}.")
        if wait:
            wait_and_exit(client, execution.id, deadline=deadline, output=output)
    write_resource(execution.raw, output, short=execution.id)


@app.command(name="next")
def next_runs(
    job: JobArgument,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Number of instants.")] = 5,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the next instants at which the schedules of a job fire."""
    with connect() as client:
        instants = client.next_instants(resolve_job_id(client, job), count=count)
    if_empty = f"No runs are scheduled: {PROGRAM} run JOB runs it now, {PROGRAM} edit JOB --every 1h schedules it."
    write_list(instants, INSTANT_COLUMNS, output, if_empty=if_empty)


@app.command()
def pause(
    job: JobArgument,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Reason, shown with the job.")] = "",
    output: ResultFormatOption = None,
) -> None:
    """Pause a job: its schedules do not fire until it is resumed. Running executions continue."""
    with connect() as client:
        paused = client.pause_job(resolve_job_id(client, job), note=note)
    write_message(f"The job {paused.name_and_owner} is {paused.status}. Resume it: {PROGRAM} resume {paused.id}")
    write_resource(paused.raw, output)


@app.command()
def resume(job: JobArgument, output: ResultFormatOption = None) -> None:
    """Resume a paused job."""
    with connect() as client:
        resumed = client.resume_job(resolve_job_id(client, job))
    write_message(f"The job {resumed.name_and_owner} is {resumed.status}.{describe_next_run(resumed)}")
    write_resource(resumed.raw, output)


@app.command()
def backfill(  # noqa: PLR0917  one parameter per option
    job: JobArgument,
    from_word: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start of the range; 7d is a week ago.")
    ] = None,
    to_word: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End of the range. Default: now.")] = None,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="ID", help="Cancel a backfill; executions it created remain.")
    ] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """Run a job for past instants of its schedules that have no execution. Without a range: list its backfills."""
    if cancel is not None and (from_word is not None or to_word is not None):
        raise UsageError("--cancel cannot be combined with --from or --to.")
    if from_word is None and to_word is not None:
        raise UsageError("--to has no meaning without --from.")
    if cancel is not None and not is_uuid(cancel):
        raise UsageError(f"{cancel!r} is not the id of a backfill: {PROGRAM} backfill {job} lists them.")
    from_, to = (None if word is None else parse_time(word) for word in (from_word, to_word))
    with connect() as client:
        named = None if is_uuid(job) else find_job_by_name(client, job)
        job_id = job if named is None else named.id
        if cancel is not None:
            cancelled = client.cancel_backfill(cancel)
            write_message(f"The backfill {cancelled.id} is {cancelled.status}; it created {cancelled.done} executions.")
            write_list([cancelled], BACKFILL_COLUMNS, output)
        elif from_ is not None:
            created = client.backfill_job(job_id, from_=from_, to=to or parse_time("1s"))
            of_job = "" if named is None else f" of {named.name_and_owner}"
            write_message(
                f"Backfilling {created.expected} instants{of_job}. Show the progress: {PROGRAM} backfill {job_id}"
            )
            write_list([created], BACKFILL_COLUMNS, output)
        else:
            if_empty = "No backfills yet: --from 7d backfills the last week."
            write_list(client.backfills(job_id, limit=limit), BACKFILL_COLUMNS, output, if_empty=if_empty)


@app.command()
def cancel(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Job name or id.", autocompletion=complete_job_name)
    ] = None,
    execution: Annotated[str | None, typer.Option(metavar="ID", help="Cancel only this execution.")] = None,
    yes: YesOption = False,
    output: ResultFormatOption = None,
) -> None:
    """Cancel a job with its schedules and executions, or one execution."""
    if (job is None) == (execution is None):
        raise UsageError("Name either a job or, with --execution, one execution.")
    with connect() as client:
        if job is not None:
            found = find_job(client, job)
            confirm(f"Cancel the job {found.name_and_owner}, its schedules and its executions?", yes=yes)
            cancelled = client.cancel_job(found.id)
            write_message(f"The job {cancelled.name_and_owner} is {cancelled.status}.")
            write_resource(cancelled.raw, output)
        elif execution is not None:
            stopped = client.cancel_execution(check_execution_id(execution))
            state = stopped.status if stopped.has_ended else "being cancelled"
            write_message(f"The execution {stopped.id} is {state}.")
            write_resource(stopped.raw, output)


def describe_next_run(job: Job) -> str:
    return f" Next run: {format_time(job.next_instants[0])}." if job.next_instants else ""


def _job_or_execution(client: Client, identifier: str) -> Job | Execution:
    for find in (client.job, client.execution):
        try:
            return find(identifier)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
    raise ApiError(
        f"There is neither a job nor an execution {identifier}: {PROGRAM} jobs and {PROGRAM} executions list them.",
        status=HTTPStatus.NOT_FOUND,
    )


def _write_execution(client: Client, execution: Execution, output: Format) -> None:
    attempts, events = client.attempts(execution.id), client.events(execution.id)
    if output is Format.TABLE:
        rows = list(flatten(execution.raw).items())
        rows += [(f"attempt {attempt.number}", format_attempt(attempt)) for attempt in attempts]
        rows += [(f"event {number}", format_event(event)) for number, event in enumerate(events, start=1)]
        write_fields(rows)
    else:
        details = {"attempts": [each.raw for each in attempts], "events": [each.raw for each in events]}
        write_object({**execution.raw, **details}, output)
    warn_about_problems(attempts)
