"""What the person who typed the command sees: one line a step, sentences for problems.

Nothing here wraps: a token that is printed can be copied whole, in a terminal or from a file.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rich.console
from rich.markup import escape

from scheduler_project.embedded.problems import StackProblem

LOG_LINES = 15


class _Output(rich.console.Console):
    def on_broken_pipe(self) -> None:
        """Whoever read the output went away (`up --detach | head`): that is no reason to stop a stack."""
        self.quiet = True
        # The interpreter flushes what is left when it ends; it must find something that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Console:
    def __init__(self) -> None:
        self._out = _Output(highlight=False, soft_wrap=True)
        self._err = rich.console.Console(highlight=False, soft_wrap=True, stderr=True)
        # A terminal of an older encoding cannot show the mark.
        self._done = "ok" if self._out.options.ascii_only else "✓"

    def say(self, text: str = "", *, style: str | None = None) -> None:
        self._out.print(escape(text), style=style)

    @contextmanager
    def step(self, doing: str, done: str) -> Iterator[None]:
        """Shows what is being done while it is, and how long it took once it was."""
        begin = time.monotonic()
        if self._out.is_terminal:
            with self._out.status(escape(f"{doing} ...")):
                yield
        else:
            yield
        took = time.monotonic() - begin
        self._out.print(f"[green]{self._done}[/green] {escape(done)} [dim]({took:.1f} s)[/dim]")

    def fields(self, fields: dict[str, str]) -> None:
        width = max(map(len, fields))
        for name, value in fields.items():
            self._out.print(f"  [bold]{escape(name.ljust(width))}[/bold]  {escape(value)}")

    def table(self, rows: list[tuple[str, ...]]) -> None:
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for number, row in enumerate(rows):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            self._out.print(escape(line), style="bold" if number == 0 else None)

    def problem(self, problem: StackProblem) -> None:
        if problem.log is not None:
            for line in last_lines(problem.log, LOG_LINES):
                self._err.print(f"[dim]  | {escape(line)}[/dim]")
        self._err.print(f"[bold red]punctual:[/bold red] {escape(problem.sentence)}")
        if problem.log is not None:
            self._err.print(f"[dim]The whole log is {escape(str(problem.log))}[/dim]")


def last_lines(path: Path, count: int) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=count)]
    except FileNotFoundError:
        return []
