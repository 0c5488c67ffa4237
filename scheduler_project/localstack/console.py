"""Terminal output of the local stack: one line per step, one sentence per error.

Lines never wrap, so that a printed token can be copied whole.
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

from scheduler_project.localstack.errors import StackError

LOG_LINES = 15


class _Output(rich.console.Console):
    def on_broken_pipe(self) -> None:
        """Keep the stack running when the reader of the output exits (`up --detach | head`)."""
        self.quiet = True
        # The interpreter flushes stdout at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


class Console:
    def __init__(self) -> None:
        self._out = _Output(highlight=False, soft_wrap=True)
        self._err = rich.console.Console(highlight=False, soft_wrap=True, stderr=True)
        # Terminals with an ASCII encoding cannot show the check mark.
        self._done = "ok" if self._out.options.ascii_only else "✓"

    def print(self, text: str = "", *, style: str | None = None) -> None:
        self._out.print(escape(text), style=style)

    @contextmanager
    def step(self, doing: str, done: str) -> Iterator[None]:
        """Show a spinner during the step, and its duration afterwards."""
        started = time.monotonic()
        if self._out.is_terminal:
            with self._out.status(escape(f"{doing} ...")):
                yield
        else:
            yield
        took = time.monotonic() - started
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

    def print_error(self, error: StackError) -> None:
        if error.log is not None:
            for line in read_last_lines(error.log, LOG_LINES):
                self._err.print(f"[dim]  | {escape(line)}[/dim]")
        self._err.print(f"[bold red]punctual:[/bold red] {escape(error.sentence)}")
        if error.log is not None:
            self._err.print(f"[dim]The complete log is {escape(str(error.log))}[/dim]")


def read_last_lines(path: Path, count: int) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=count)]
    except FileNotFoundError:
        return []
