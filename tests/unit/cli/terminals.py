"""A command with a terminal of its own or with none, whatever terminal the tests were started from."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LONGEST_SECONDS = 60
# The first terminal that the leader of a session opens is the one that it can be asked on.
_TAKE_TERMINAL = "import os, sys; os.open(sys.argv.pop(1), os.O_RDWR); "


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str
    asked: str  # what the terminal shows, with the answer


def run_in_session(
    program: str, *words: str, typed: str, answer: str | None = None, environment: Mapping[str, str] | None = None
) -> Ended:
    """`typed` is its standard input, a pipe; `answer` is typed at its terminal, and None: it has none."""
    with _terminal(answer) as (ours, name):
        more = [program, *words] if name is None else [f"{_TAKE_TERMINAL}{program}", name, *words]
        ended = subprocess.run(
            [sys.executable, "-c", *more], input=typed, cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=LONGEST_SECONDS, start_new_session=True, check=False,
        )  # fmt: skip
        asked = "" if ours is None else os.read(ours, 4096).decode()
    return Ended(ended.returncode, ended.stdout, ended.stderr, asked)


@contextmanager
def _terminal(answer: str | None) -> Iterator[tuple[int | None, str | None]]:
    if answer is None:
        yield None, None
        return
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    yield ours, os.ttyname(theirs)
    os.close(theirs)
    os.close(ours)
