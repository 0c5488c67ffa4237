"""`jobs`, `show`, `run`, `next` and `cancel`: what can be asked of a job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

import typer

from cli.app import app, check_execution_id, connect, resolve_job
from cli.commands.options import FormatOption, JobArgument, LimitOption, WaitLimitOption, WaitOption
from cli.errors import UsageMistakeError
from cli.following import wait_and_exit
from cli.terminal import Format, say, shown_time, write_json, write_result, write_table
from cli.values import parse_duration


@app.command()
def jobs(
    status: Annotated[str | None, typer.Option(help="Only jobs in this state, such as running.")] = None,
    search: Annotated[str | None, typer.Option(help="Only jobs whose name has this in it.")] = None,
    limit: LimitOption = 50,
    output: FormatOption = Format.TABLE,
) -> None:
    """List jobs."""
    with connect() as client:
        found = client.jobs(status=status, search=search, limit=limit)
    if output is Format.JSON:
        write_json([job.raw for job in found])
        return
    rows = [(job.id, job.name, job.status, shown_time(next(iter(job.next_instants), None))) for job in found]
    write_table(("ID", "NAME", "STATUS", "NEXT RUN"), rows)


@app.command()
def show(job: JobArgument, output: FormatOption = Format.TABLE) -> None:
    """Show all that is known of a job."""
    with connect() as client:
        found = client.job(resolve_job(client, job))
    if output is Format.JSON:
        write_json(found.raw)
        return
    write_table(("FIELD", "VALUE"), list(_flatten(found.raw).items()))


def _flatten(value: object, name: str = "") -> dict[str, str]:
    """Nested fields as `retry.max_attempts` and `schedules.0.cron`, without those that are empty."""
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {} if value is None or value == "" else {name: str(value)}
    flat: dict[str, str] = {}
    for key, item in pairs:
        flat |= _flatten(item, f"{name}.{key}" if name else key)
    return flat


@app.command()
def run(
    job: JobArgument,
    worker: Annotated[str | None, typer.Option(metavar="ID", help="Only on this worker.")] = None,
    wait: WaitOption = False,
    wait_limit: WaitLimitOption = "1d",
) -> None:
    """Run a job now, whatever its schedules say. Prints the execution's id."""
    deadline = time.monotonic() + parse_duration(wait_limit)
    with connect() as client:
        execution = client.execute_job(resolve_job(client, job), worker_id=worker)
        if wait:
            wait_and_exit(client, execution.id, deadline=deadline)
        write_result(execution.id)


@app.command(name="next")
def next_runs(
    job: JobArgument,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 5,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show when a job runs next."""
    with connect() as client:
        instants = client.next_instants(resolve_job(client, job), count=count)
    if output is Format.JSON:
        write_json([instant.raw for instant in instants])
        return
    rows = [(shown_time(instant.at), shown_time(instant.local), instant.note or "") for instant in instants]
    write_table(("AT", "LOCAL", "NOTE"), rows)


@app.command()
def cancel(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="The id or the name of a job.")] = None,
    execution: Annotated[str | None, typer.Option(metavar="ID", help="Cancel this one execution instead.")] = None,
) -> None:
    """Cancel a job and what it runs, or one execution."""
    if (job is None) == (execution is None):
        raise UsageMistakeError("Name either a job or, with --execution, one execution.")
    with connect() as client:
        if job is not None:
            cancelled = client.cancel_job(resolve_job(client, job))
            say(f"The job {cancelled.name} is {cancelled.status}.")
        elif execution is not None:
            stopped = client.cancel_execution(check_execution_id(execution))
            state = stopped.status if stopped.has_ended else "being cancelled"
            say(f"The execution {stopped.id} is {state}.")
