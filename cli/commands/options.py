"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.terminal import Format

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The id or the name of a job.")]
ExecutionArgument = Annotated[str, typer.Argument(metavar="EXECUTION", help="The id of an execution.")]
FormatOption = Annotated[Format, typer.Option("--output", "-o", help="A table to read, or JSON for programs.")]
LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="At most this many.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Stream the log until the execution ends, then exit with its code.")
]
WaitLimitOption = Annotated[str, typer.Option("--wait-limit", metavar="DURATION", help="Stop waiting after this long.")]
