"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from punctual_cli.commands.completion import complete_job_name
from punctual_cli.output.results import Format


class TokenScope(StrEnum):
    """The rights of a token: each scope includes the ones before it, except `worker`, which is separate."""

    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"
    WORKER = "worker"


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job name or id.", autocompletion=complete_job_name)]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Filter by job (name or id).", autocompletion=complete_job_name),
]
ExecutionOrJobArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXECUTION|JOB",
        help="Execution id, or a job for its newest execution.",
        autocompletion=complete_job_name,
    ),
]
ExecutionArgument = Annotated[str, typer.Argument(metavar="EXECUTION", help="Execution id.")]
FormatOption = Annotated[Format, typer.Option("--output", "-o", help="Output format; wide shows all columns, uncut.")]
# For commands that change something: by default they print an id or nothing on stdout.
ResultFormatOption = Annotated[
    Format | None, typer.Option("--output", "-o", help="Print the whole result in this format.")
]
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum number of rows.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Stream the log until the execution ends, then exit with its exit code.")
]
WaitLimitOption = Annotated[str, typer.Option("--wait-limit", metavar="DURATION", help="Stop waiting after this long.")]
