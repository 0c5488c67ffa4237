"""`show`: all that is known of a job or of an execution."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from cli.app import app, connect, resolve_job
from cli.attempt_notes import attempt_in_words, event_in_words, warn
from cli.commands.options import FormatOption
from cli.completion import job_names
from cli.errors import ClientError
from cli.records import Execution
from cli.results import Format, flatten, write_fields, write_object
from cli.values import is_id

if TYPE_CHECKING:
    from cli.client import Client
    from cli.records import Job


@app.command()
def show(
    thing: Annotated[
        str,
        typer.Argument(
            metavar="JOB|EXECUTION", help="The id or the name of a job, or an execution's id.", autocompletion=job_names
        ),
    ],
    output: FormatOption = Format.TABLE,
) -> None:
    """Show all that is known of a job or of an execution.

    The attempts at an execution, and what was not ordinary about it, are a line each; with -o wide every field.
    """
    with connect() as client:
        found = _job_or_execution(client, thing) if is_id(thing) else client.job(resolve_job(client, thing))
        if isinstance(found, Execution):
            _write_execution(client, found, output)
        else:
            write_object(found.raw, output)


def _job_or_execution(client: Client, identifier: str) -> Job | Execution:
    for find in (client.job, client.execution):
        try:
            return find(identifier)
        except ClientError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
    raise ClientError(
        f"There is neither a job nor an execution {identifier}: ./punctual jobs and ./punctual executions list them.",
        status=HTTPStatus.NOT_FOUND,
    )


def _write_execution(client: Client, execution: Execution, output: Format) -> None:
    attempts, events = client.attempts(execution.id), client.events(execution.id)
    if output is Format.TABLE:
        rows = list(flatten(execution.raw).items())
        rows += [(f"attempt {attempt.number}", attempt_in_words(attempt)) for attempt in attempts]
        rows += [(f"event {number}", event_in_words(event)) for number, event in enumerate(events, start=1)]
        write_fields(rows)
    else:
        told = {"attempts": [each.raw for each in attempts], "events": [each.raw for each in events]}
        write_object({**execution.raw, **told}, output)
    warn(attempts)
