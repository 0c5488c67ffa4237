"""Completion in a real bash on a terminal: the keys that a user types, and the command line that they result in."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.punctual_cli.server import RecordingServer

ROOT = Path(__file__).resolve().parents[3]
BASH = ["bash", "--norc", "--noprofile", "-i"]
SETUP = 'eval "$(./punctual completion bash)"'
READY = "the shell is ready"
TIMEOUT_SECONDS = 30
# Prints its arguments instead of running the command; completion is the real one.
COMMAND = f"""#!/bin/sh
PUNCTUAL_PROGRAM=./punctual
export PUNCTUAL_PROGRAM
[ -z "${{_PUNCTUAL_COMPLETE-}}" ] && [ "$1" != completion ] ||
    exec {shlex.quote(sys.executable)} -P -m punctual_cli "$@"
printf '<'; printf '%s;' "$@"; printf '>\\n'
"""
TYPED = {
    "./punctual artif": "<artifacts;>",
    "./punctual tokens cre": "<tokens;create;>",
    "./punctual executions --wor": "<executions;--worker;>",
    "./punctual jobs -o js": "<jobs;-o;json;>",
    "./punctual jobs --output=js": "<jobs;--output=json;>",
    "./punctual --profile loc": "<--profile;local;>",
    "./punctual show nig": "<show;nightly;>",
    "./punctual submit 'a jo": "<submit;a job.sh;>",
    "~/bin/punctual stack sta": "<stack;status;>",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for command in (tmp_path / "punctual", tmp_path / "bin/punctual"):
        command.write_text(COMMAND)
        command.chmod(0o755)
    (tmp_path / "a job.sh").write_text("true\n")
    return tmp_path


@pytest.fixture
def environment(home: Path) -> Iterator[dict[str, str]]:
    server = RecordingServer()
    found = [{"id": "J", "name": name, "status": "x"} for name in ("nightly", "night $(touch oops)")]
    server.answer("GET", "/api/v1/jobs?search=nig&limit=50", {"results": found})
    yield {
        "PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", "PS1": "> ", "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(ROOT), "PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t",
    }  # fmt: skip
    server.close()


@contextmanager
def terminal(command: list[str], home: Path, environment: dict[str, str]) -> Iterator[Callable[[str, str], str]]:
    """Yield a function that types a text and returns the output of the terminal up to an expected pattern."""
    screen, keyboard = os.openpty()
    # A shell is interactive only with a controlling terminal.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        cwd=home, env=environment, stdin=keyboard, stdout=keyboard, stderr=keyboard,
    )  # fmt: skip
    os.close(keyboard)

    def type_text(text: str, expected: str) -> str:
        os.write(screen, text.encode())
        shown, deadline = b"", time.monotonic() + TIMEOUT_SECONDS
        while not re.search(expected, shown.decode(errors="replace")):
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"after {text!r} the terminal shows {shown!r}"
            if select.select([screen], [], [], remaining)[0]:
                shown += os.read(screen, 4096)
        return shown.decode(errors="replace")

    try:
        yield type_text
    finally:
        process.kill()
        process.wait(timeout=10)
        os.close(screen)


def test_tab_completes_the_typed_word(home: Path, environment: dict[str, str]) -> None:
    with terminal(BASH, home, environment) as type_text:
        # The quotes distinguish the echo of the input from the output.
        type_text(f"{SETUP}; echo {READY[:4]}''{READY[4:]}\n", rf"{READY}\r\n")
        for typed, called in TYPED.items():
            shown = type_text(f"{typed}\t\n", r"<[^\n]*>\r\n")
            assert re.findall(r"<[^\n]*>", shown) == [called], f"{typed}: {shown!r}"
    assert not (home / "oops").exists()
