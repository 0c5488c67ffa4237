"""`python -m cli`: runs a command and turns every failure into one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer
from typer.core import TyperGroup

from cli.completion import ASKED, answer
from cli.errors import CliError, UnreachableError
from cli.root import root
from cli.terminal import say

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main(arguments: Sequence[str]) -> int:
    _have_streams()
    try:
        if arguments[:1] == [ASKED]:
            code = complete(arguments[1:])
        else:
            code = root(list(arguments), prog_name="punctual", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CliError as error:
        more = " ./punctual doctor tells more." if isinstance(error, UnreachableError) else ""
        say(f"punctual: {error}{more}")
        return error.exit_code
    except typer.TyperException as error:
        say(f"punctual: {mistake(error)}")
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except (SystemExit, BrokenPipeError):
        # The reader left (`| head`), for which typer exits by itself.
        _forget_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        _forget_stdout()
        what = error.filename or "What was to be printed"
        why = error.strerror or error
        say(f"punctual: {what} could not be written ({why}): make room for it, or write it elsewhere.")
        return CliError.exit_code


def mistake(error: typer.TyperException) -> str:
    """What was typed wrongly, and whose help tells how it is typed."""
    context: typer.Context | None = getattr(error, "ctx", None)
    # How a validation library begins its sentences is of no use to anybody.
    said = error.format_message().replace(": Value error, ", ": ").rstrip(".")
    if context is not None and said == "Missing command" and isinstance(context.command, TyperGroup):
        said = f"{said}: say {' or '.join(context.command.commands)}"
    path = "punctual" if context is None else context.command_path
    return f"{said}{'' if said.endswith('?') else '.'} See {path} --help."


def complete(asked: Sequence[str]) -> int:
    shell, *words = asked or [""]
    for line in answer(typer.main.get_command(root), shell, words):
        print(line)
    return 0


def _have_streams() -> None:
    """A shell can close any of the three (`>&-`); Python then has None there, and the next file takes its number.

    What is printed to a stdout that was closed cannot be written, which is told as of a full disk; what is said to a
    stderr that was closed is not wanted.
    """
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def _forget_stdout() -> None:
    """Without this, Python complains once more, and ends with a code of its own, when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> NoReturn:
    # httpx would read the command line that it has of its own, for longer than all else of it takes.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
