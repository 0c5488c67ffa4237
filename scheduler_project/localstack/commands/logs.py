"""`stack logs`: print the last lines of one or all processes, and follow them.

Following survives rotation: when a log is replaced, the new one is read from its beginning.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from scheduler_project.localstack.console import Console, read_last_lines
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout

POLL_SECONDS = 0.2


def show_logs(layout: Layout, console: Console, *, process: str | None, lines: int, follow: bool) -> None:
    logs = {path.stem: path for path in sorted(layout.logs.glob("*.log"))} if layout.logs.is_dir() else {}
    if not logs:
        raise StackError("There are no logs yet, because no stack was started here. Start it with `./punctual up`.")
    if process is not None and process not in logs:
        raise StackError(f"There is no process {process!r}; there are: {', '.join(logs)}.")
    chosen = logs if process is None else {process: logs[process]}
    width = max(map(len, chosen))
    prefixes = {name: "" if process else f"{name.ljust(width)} | " for name in chosen}
    followed = (
        [FollowedLog(path, prefixes[name], _open_at_end(path)) for name, path in chosen.items()] if follow else []
    )
    for name, path in chosen.items():
        for line in read_last_lines(path, lines):
            console.print(prefixes[name] + line)
    while followed:
        for log in followed:
            for line in log.new_lines():
                console.print(log.prefix + line)
        time.sleep(POLL_SECONDS)


@dataclass
class FollowedLog:
    path: Path
    prefix: str
    file: TextIO
    incomplete_line: str = ""

    def new_lines(self) -> list[str]:
        text = self.incomplete_line + self.file.read()
        try:
            replaced = self.path.stat().st_ino != _read_inode(self.file)
        except FileNotFoundError:
            replaced = False
        if replaced:
            self.file.close()
            self.file = _open(self.path)
            text += self.file.read()
        *lines, self.incomplete_line = text.split("\n")
        return lines


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _open_at_end(path: Path) -> TextIO:
    file = _open(path)
    file.seek(0, 2)
    return file


def _read_inode(file: TextIO) -> int:
    return os.fstat(file.fileno()).st_ino
