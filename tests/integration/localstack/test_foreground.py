"""`./punctual up` in a terminal: repeated Ctrl-C at any moment leaves nothing running."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scheduler_project.localstack.commands.down import is_anything_running
from scheduler_project.localstack.layout import Layout
from tests.integration.localstack.processes import is_gone
from tests.support.waiting import eventually

COMMAND = (sys.executable, "-P", "-m", "scheduler_project.localstack")
START_SECONDS = 120.0
STOP_SECONDS = 60.0


@contextmanager
def up(environment: dict[str, str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        output.open("wb") as file,
        subprocess.Popen([*COMMAND, "up"], env=environment, stdout=file, stderr=file) as child,
    ):
        try:
            yield child
        finally:
            child.terminate()
            child.wait(STOP_SECONDS)


def interrupt_twice(child: subprocess.Popen[bytes]) -> int:
    child.send_signal(signal.SIGINT)
    eventually(lambda: child.poll() is not None, seconds=0.5)
    child.send_signal(signal.SIGINT)
    return child.wait(STOP_SECONDS)


def read_pids(layout: Layout) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in layout.run.glob("*.pid") if "own" not in path.name]


def test_interrupted_start_leaves_nothing_running(environment: dict[str, str], tmp_path: Path) -> None:
    layout = Layout.from_environment(environment)
    output = tmp_path / "output"
    with up(environment, output) as child:
        assert eventually(lambda: "Started postgres" in output.read_text(), seconds=START_SECONDS)
        started = read_pids(layout)
        assert interrupt_twice(child) == 130

    assert len(started) == 4
    assert all(map(is_gone, started))
    assert not is_anything_running(layout)
    assert output.read_text().endswith("Interrupted: nothing of the stack is running.\n")


def test_start_serve_and_stop(environment: dict[str, str], tmp_path: Path) -> None:
    layout = Layout.from_environment(environment)
    output = tmp_path / "output"
    with up(environment, output) as child:
        assert eventually(
            lambda: "Press Ctrl-C to stop." in output.read_text() or child.poll() is not None, seconds=START_SECONDS
        )
        printed = output.read_text()
        assert "Hello from Punctual" in printed, printed
        assert "succeeded, exit code 0" in printed

        credentials = json.loads(layout.credentials.read_text())
        assert set(credentials) == {
            "url",
            "api_token",
            "admin_user",
            "admin_password",
            "flower_url",
            "flower_user",
            "flower_password",
        }
        assert stat.S_IMODE(layout.credentials.stat().st_mode) == 0o600
        assert credentials["api_token"] in printed

        again = subprocess.run(
            [*COMMAND, "up"], env=environment, capture_output=True, text=True, timeout=30, check=True
        )
        assert again.stdout.startswith("Punctual is already running.\n")
        assert credentials["api_token"] in again.stdout

        started = read_pids(layout)
        assert len(started) == 8
        assert interrupt_twice(child) == 0

    assert all(map(is_gone, started))
    assert not is_anything_running(layout)
    assert output.read_text().rstrip().splitlines()[-1].find("Stopped: nothing of the stack is running") >= 0
