"""Suspends processes with SIGSTOP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import psutil


@contextlib.contextmanager
def suspended(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """Stop the processes until the block ends; pass over those that have ended, as short-lived children do."""
    stopped: list[psutil.Process] = []
    try:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
                stopped.append(process)
        yield
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
