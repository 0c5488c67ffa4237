"""Real stacks for the acceptance tests, started and stopped by the commands that users type."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.stack import Stack
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_means_something() -> None:
    """A shell that runs the suite in the background has it, and all that it starts, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with started_stack({"PUNCTUAL_WORKER_NETWORK": "1"}) as running:
        yield running


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "script.sh"
        path.write_text(text)
        return path

    return write


@contextmanager
def started_stack(settings: Mapping[str, str]) -> Iterator[Stack]:
    directory = Path(tempfile.mkdtemp(prefix="punctual-acceptance-"))
    running = Stack(directory / "var", settings=settings)
    try:
        running.command("up", "--detach")
        yield running
        running.api.close()
    finally:
        running.command("down", check=False)
        wait_for(lambda: not running.processes(), "no process of the stack is left", seconds=30)
        shutil.rmtree(directory)
