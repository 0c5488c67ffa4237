"""`python -m cli`: runs a command and turns every failure into one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from cli.app import app
from cli.commands import (
    apply,
    artifacts,
    audit,
    backfill,
    calendars,
    dead_letters,
    edit,
    executions,
    explain,
    imports,
    jobs,
    login,
    outputs,
    queues,
    search,
    secrets,
    submit,
    tokens,
    workers,
)
from cli.errors import CliError
from cli.following import EXIT_INTERRUPTED
from cli.terminal import say

# Importing a module of commands is what registers them.
COMMANDS = (
    submit,
    edit,
    apply,
    jobs,
    backfill,
    calendars,
    secrets,
    executions,
    search,
    explain,
    imports,
    dead_letters,
    outputs,
    artifacts,
    workers,
    queues,
    audit,
    login,
    tokens,
)

EXIT_USAGE = 2
EXIT_BROKEN_PIPE = 141


def main(arguments: Sequence[str]) -> int:
    try:
        code = app(list(arguments), prog_name="punctual", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CliError as error:
        say(f"punctual: {error}")
        return error.exit_code
    except typer.TyperException as error:
        say(f"punctual: {error.format_message().rstrip('.')}. See punctual --help.")
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except SystemExit:
        # Typer exits by itself in this one case: the reader left while a command was printing.
        return EXIT_BROKEN_PIPE
    except BrokenPipeError:
        # The reader left (`| head`); without this, Python complains once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
