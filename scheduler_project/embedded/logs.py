"""`stack logs`: the last lines of one process or of all, and what follows.

Following survives rotation: when a log is replaced, the new one is read from its beginning.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from scheduler_project.embedded.console import Console, last_lines
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.problems import StackProblem

POLL_SECONDS = 0.2


def show_logs(layout: Layout, console: Console, *, process: str | None, lines: int, follow: bool) -> None:
    logs = {path.stem: path for path in sorted(layout.logs.glob("*.log"))} if layout.logs.is_dir() else {}
    if not logs:
        raise StackProblem("There are no logs yet: nothing was started here. Start it with `./punctual up`.")
    if process is not None and process not in logs:
        raise StackProblem(f"There is no process {process!r}; there are: {', '.join(logs)}.")
    chosen = logs if process is None else {process: logs[process]}
    width = max(map(len, chosen))
    prefixes = {name: "" if process else f"{name.ljust(width)} | " for name in chosen}
    followed = [Followed(path, prefixes[name], _open_at_end(path)) for name, path in chosen.items()] if follow else []
    for name, path in chosen.items():
        for line in last_lines(path, lines):
            console.say(prefixes[name] + line)
    while followed:
        for log in followed:
            for line in log.new_lines():
                console.say(log.prefix + line)
        time.sleep(POLL_SECONDS)


@dataclass
class Followed:
    path: Path
    prefix: str
    file: TextIO
    unfinished: str = ""

    def new_lines(self) -> list[str]:
        text = self.unfinished + self.file.read()
        try:
            replaced = self.path.stat().st_ino != _inode(self.file)
        except FileNotFoundError:
            replaced = False
        if replaced:
            self.file.close()
            self.file = _open(self.path)
            text += self.file.read()
        *lines, self.unfinished = text.split("\n")
        return lines


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _open_at_end(path: Path) -> TextIO:
    file = _open(path)
    file.seek(0, 2)
    return file


def _inode(file: TextIO) -> int:
    return os.fstat(file.fileno()).st_ino
