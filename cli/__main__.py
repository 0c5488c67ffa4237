"""`python -m cli`: runs a command and turns every failure into one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from typer._completion_classes import completion_init

from cli.app import app
from cli.commands import (
    apply,
    artifacts,
    audit,
    backfill,
    bench,
    calendars,
    completion,
    dead_letters,
    doctor,
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
    webhooks,
    workers,
)
from cli.completion import VARIABLE
from cli.errors import CliError, UnreachableError
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
    webhooks,
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
    doctor,
    bench,
    completion,
)

EXIT_USAGE = 2
EXIT_BROKEN_PIPE = 141


def main(arguments: Sequence[str]) -> int:
    if VARIABLE in os.environ:
        completion_init()
    try:
        code = app(list(arguments), prog_name="punctual", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CliError as error:
        more = " ./punctual doctor tells more." if isinstance(error, UnreachableError) else ""
        say(f"punctual: {error}{more}")
        return error.exit_code
    except typer.TyperException as error:
        say(f"punctual: {error.format_message().rstrip('.')}. See punctual --help.")
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (SystemExit, BrokenPipeError):
        # The reader left (`| head`), for which typer exits by itself, as it does when it has completed a word.
        _forget_stdout()
        return 0 if VARIABLE in os.environ else EXIT_BROKEN_PIPE
    except OSError as error:
        _forget_stdout()
        what = error.filename or "What was to be printed"
        why = error.strerror or error
        say(f"punctual: {what} could not be written ({why}): make room for it, or write it elsewhere.")
        return CliError.exit_code


def _forget_stdout() -> None:
    """Without this, Python complains once more, and ends with a code of its own, when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
