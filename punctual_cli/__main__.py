"""Entry point of `punctual`: runs a command and turns every failure into one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import NoReturn

import typer
from typer.core import TyperGroup

from punctual_cli.commands.completion import COMPLETE_VARIABLE
from punctual_cli.output.terminal import write_message
from punctual_cli.root import root
from punctual_client.errors import PROGRAM, PunctualError, UnreachableError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main(arguments: Sequence[str]) -> int:
    _reopen_closed_streams()
    try:
        if COMPLETE_VARIABLE in os.environ:
            code: object = print_candidates()
        else:
            code = root(list(arguments), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PunctualError as error:
        hint = f" Run {PROGRAM} doctor to find out." if isinstance(error, UnreachableError) else ""
        write_message(f"punctual: {error}{hint}")
        return error.exit_code
    except typer.TyperException as error:
        write_message(f"punctual: {describe_usage_error(error)}")
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (SystemExit, BrokenPipeError):
        # The reader closed the pipe (`| head`), on which typer exits.
        _discard_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        _discard_stdout()
        target, reason = error.filename or "The output", error.strerror or error
        write_message(f"punctual: {target} could not be written ({reason}): free some space, or write elsewhere.")
        return PunctualError.exit_code


def describe_usage_error(error: typer.TyperException) -> str:
    """Describe the mistake in the arguments and name the help to read."""
    context: typer.Context | None = getattr(error, "ctx", None)
    # The prefix comes from the validation library.
    problem = error.format_message().replace(": Value error, ", ": ").rstrip(".")
    if context is not None and problem == "Missing command" and isinstance(context.command, TyperGroup):
        problem = f"{problem}: use {' or '.join(context.command.commands)}"
    path = PROGRAM if context is None else context.command_path
    return f"{problem}{'' if problem.endswith('?') else '.'} See {path} --help."


def print_candidates() -> int:
    """Answer the completion script of a shell; nothing else may reach its prompt."""
    from punctual_cli.shell_completion import register_shells  # noqa: PLC0415  only completion needs it

    register_shells()
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        try:
            root([], prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, standalone_mode=False)
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 0
        except (PunctualError, typer.TyperException, KeyboardInterrupt):
            return 1
    return 0


def _reopen_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that the shell closed (`>&-`).

    Python sets such a stream to None and the next opened file would take its number. Writing to a closed stdout still
    fails, as on a full disk; messages to a closed stderr are dropped.
    """
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _discard_stdout() -> None:
    """Keep Python from failing again, with an exit code of its own, when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> NoReturn:
    # httpx would import its own command line, which takes longer than all the rest of it.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
