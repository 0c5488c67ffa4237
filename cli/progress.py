"""How far a file has travelled, for a person who waits for it; nobody there, nothing is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from cli.terminal import console, neutralise

SMALLEST_BYTES = 1024 * 1024

Advance = Callable[[int], None]
# Of a transfer of a name and a size: what is to be told of every piece of it.
Watch = Callable[[str, int], AbstractContextManager[Advance]]


@contextmanager
def unwatched(name: str, size: int) -> Iterator[Advance]:
    yield lambda _: None


def bar(verb: str) -> Watch:
    """A bar on stderr; stdout is for results."""

    @contextmanager
    def watched(name: str, size: int) -> Iterator[Advance]:
        if size < SMALLEST_BYTES or not sys.stderr.isatty():
            yield lambda _: None
            return
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        screen = console(stderr=True)
        with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=screen, transient=True) as shown:
            task = shown.add_task(f"{verb} {neutralise(name)}", total=size)
            yield lambda count: shown.advance(task, count)

    return watched


UPLOADS = bar("Uploading")
DOWNLOADS = bar("Fetching")
