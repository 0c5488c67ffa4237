"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cli.completion import job_names
from cli.results import Format


class Scope(StrEnum):
    """What a token may do: each includes those before it, but for a worker's, which stands apart."""

    READ = "read"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"
    WORKER = "worker"


JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The id or the name of a job.", autocompletion=job_names)
]
JobOption = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Only what is of this job (id or name).", autocompletion=job_names),
]
LookedAtArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXECUTION|JOB",
        help="The id of an execution; of a job, its newest one.",
        autocompletion=job_names,
    ),
]
ExecutionArgument = Annotated[str, typer.Argument(metavar="EXECUTION", help="The id of an execution.")]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="A table that fits, a wide one with all, or data for programs.")
]
# Of commands that change something: nothing asked for is the id, or no more than a sentence on stderr.
AnswerOption = Annotated[
    Format | None, typer.Option("--output", "-o", help="Print all of what was made or changed, in this format.")
]
LimitOption = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most this many.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Stream the log until the execution ends, then exit with its code.")
]
WaitLimitOption = Annotated[str, typer.Option("--wait-limit", metavar="DURATION", help="Stop waiting after this long.")]
