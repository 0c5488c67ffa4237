"""Progress bars of uploads and downloads, drawn only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from punctual_cli.output.terminal import console, escape_control_characters
from punctual_client.programs import Advance, ProgressReporter

MIN_BYTES_SHOWN = 1024 * 1024


def progress_bar(verb: str) -> ProgressReporter:
    """Return a reporter that draws a bar on stderr, since stdout is for results."""

    @contextmanager
    def report(name: str, size: int) -> Iterator[Advance]:
        if size < MIN_BYTES_SHOWN or not sys.stderr.isatty():
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
        with Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=screen, transient=True) as bar:
            task = bar.add_task(f"{verb} {escape_control_characters(name)}", total=size)
            yield lambda count: bar.advance(task, count)

    return report


UPLOAD_PROGRESS = progress_bar("Uploading")
DOWNLOAD_PROGRESS = progress_bar("Downloading")
