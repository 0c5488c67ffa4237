"""A command in a session of its own, with a controlling terminal or without one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.terminal import read_until_closed

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_SECONDS = 60
# The first terminal that a session leader opens becomes its controlling terminal.
_TAKE_TERMINAL = "import os, sys; os.open(sys.argv.pop(1), os.O_RDWR); "


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str
    asked: str  # the output of the terminal, with the echoed answer


def run_in_session(
    program: str, *words: str, typed: str, answer: str | None = None, environment: Mapping[str, str] | None = None
) -> Result:
    """Run Python code with `typed` piped to standard input and `answer` typed at its terminal; None: no terminal."""
    with _terminal(answer) as (screen, keyboard):
        name = None if keyboard is None else os.ttyname(keyboard)
        more = [program, *words] if name is None else [f"{_TAKE_TERMINAL}{program}", name, *words]
        ended = subprocess.run(
            [sys.executable, "-c", *more], input=typed, cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_SECONDS, start_new_session=True, check=False,
        )  # fmt: skip
        if screen is None or keyboard is None:
            asked = ""
        else:
            os.close(keyboard)
            asked = read_until_closed(screen).decode()
    return Result(ended.returncode, ended.stdout, ended.stderr, asked)


@contextmanager
def _terminal(answer: str | None) -> Iterator[tuple[int | None, int | None]]:
    """Open a terminal that the caller closes on the side of the command, and type the answer."""
    if answer is None:
        yield None, None
        return
    screen, keyboard = pty.openpty()
    os.write(screen, answer.encode())
    yield screen, keyboard
    os.close(screen)
