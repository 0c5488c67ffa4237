"""`jobs`, `run`, `next`, `cancel`, `pause` and `resume`: what can be asked of a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, check_execution_id, connect, find_job, find_named, resolve_job, resolve_worker
from cli.commands.options import (
    AnswerOption,
    FormatOption,
    JobArgument,
    LimitOption,
    WaitLimitOption,
    WaitOption,
    YesOption,
)
from cli.completion import job_names
from cli.errors import UsageMistakeError
from cli.following import wait_and_exit
from cli.results import Column, Format, field, moment, write_answer, write_list
from cli.terminal import confirm, say, shown_time
from cli.values import is_id, parse_duration

if TYPE_CHECKING:
    from cli.records import Instant, Job

COLUMNS: tuple[Column[Job], ...] = (
    Column("ID", field("id"), whole=True),
    Column("NAME", field("name")),
    Column("STATUS", field("status")),
    Column("NEXT RUN", lambda job: shown_time(next(iter(job.next_instants), None)), spare=1),
    Column("OWNER", field("owner"), wide=True, differing=True),
    Column("TEAM", field("team"), wide=True),
    Column("QUEUE", field("queue"), wide=True),
    Column("PRIORITY", field("priority"), wide=True),
    Column("RUNTIME", field("runtime"), wide=True),
    Column("SCHEDULES", lambda job: job.schedules_shown, wide=True),
    Column("VERSION", field("version"), wide=True),
    Column("CREATED", moment("created_at"), wide=True),
    Column("NOTE", field("paused_note"), wide=True),
)
INSTANT_COLUMNS: tuple[Column[Instant], ...] = (
    Column("AT", moment("at")),
    Column("LOCAL", moment("local")),
    Column("NOTE", field("note")),
)


@app.command()
def jobs(  # noqa: PLR0917  each is an option of the command line
    status: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only jobs in this state, such as running.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="QUEUE", help="Only jobs of this queue.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", min=0, max=9, help="Only jobs of this priority.")] = None,
    owner: Annotated[str | None, typer.Option(metavar="USER", help="Only jobs of this user.")] = None,
    team: Annotated[str | None, typer.Option(metavar="TEAM", help="Only jobs that are shared with this team.")] = None,
    search: Annotated[str | None, typer.Option(metavar="WORD", help="Only jobs whose name has this in it.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List jobs, newest first."""
    with connect() as client:
        found = client.jobs(
            status=status, queue=queue, priority=priority, owner=owner, team=team, search=search, limit=limit
        )
    filtered = any((status, queue, owner, team, search)) or priority is not None
    nothing = "No job matches." if filtered else "No jobs yet: ./punctual submit FILE makes one."
    write_list(found, COLUMNS, output, nothing=nothing)


@app.command()
def run(
    job: JobArgument,
    worker: Annotated[str | None, typer.Option(metavar="WORKER", help="Only on this worker (id or name).")] = None,
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
    output: AnswerOption = None,
) -> None:
    """Run a job now, whatever its schedules say. Prints the execution's id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    with connect() as client:
        worker_id = None if worker is None else resolve_worker(client, worker)
        named = None if is_id(job) else find_named(client, job)
        execution = client.execute_job(job if named is None else named.id, worker_id=worker_id)
        if named is not None:
            say(f"Running {named.name_and_owner}.")
        if wait:
            wait_and_exit(client, execution.id, deadline=deadline, output=output)
    write_answer(execution.raw, output, short=execution.id)


@app.command(name="next")
def next_runs(
    job: JobArgument,
    count: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="How many.")] = 5,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show when a job runs next."""
    with connect() as client:
        instants = client.next_instants(resolve_job(client, job), count=count)
    nothing = "It has no runs to come: ./punctual run JOB runs it now, ./punctual edit JOB --every 1h from now on."
    write_list(instants, INSTANT_COLUMNS, output, nothing=nothing)


@app.command()
def pause(
    job: JobArgument,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever finds it paused.")] = "",
    output: AnswerOption = None,
) -> None:
    """Pause a job: its schedules fire nothing until it is resumed. What runs goes on."""
    with connect() as client:
        paused = client.pause_job(resolve_job(client, job), note=note)
    say(f"The job {paused.name_and_owner} is {paused.status}. Go on with it: ./punctual resume {paused.id}")
    write_answer(paused.raw, output)


@app.command()
def resume(job: JobArgument, output: AnswerOption = None) -> None:
    """Go on with a job that was paused."""
    with connect() as client:
        resumed = client.resume_job(resolve_job(client, job))
    following = f" Next run: {shown_time(resumed.next_instants[0])}." if resumed.next_instants else ""
    say(f"The job {resumed.name_and_owner} is {resumed.status}.{following}")
    write_answer(resumed.raw, output)


@app.command()
def cancel(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="The id or the name of a job.", autocompletion=job_names)
    ] = None,
    execution: Annotated[str | None, typer.Option(metavar="ID", help="Cancel this one execution instead.")] = None,
    yes: YesOption = False,
    output: AnswerOption = None,
) -> None:
    """Cancel a job and what it runs, or one execution."""
    if (job is None) == (execution is None):
        raise UsageMistakeError("Name either a job or, with --execution, one execution.")
    with connect() as client:
        if job is not None:
            found = find_job(client, job)
            confirm(f"Cancel the job {found.name_and_owner}, its schedules and what it runs?", yes=yes)
            cancelled = client.cancel_job(found.id)
            say(f"The job {cancelled.name_and_owner} is {cancelled.status}.")
            write_answer(cancelled.raw, output)
        elif execution is not None:
            stopped = client.cancel_execution(check_execution_id(execution))
            state = stopped.status if stopped.has_ended else "being cancelled"
            say(f"The execution {stopped.id} is {state}.")
            write_answer(stopped.raw, output)
