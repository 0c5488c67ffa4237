"""bash, zsh and fish as people use them: what is typed at a terminal, and what a key makes of it."""

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

from tests.unit.cli.server import RecordingServer

ROOT = Path(__file__).resolve().parents[2]
READY = "the shell is ready"
PATIENCE_SECONDS = 30
# Says how it was called instead of doing it; what completes words is the real thing.
COMMAND = f"""#!/bin/sh
case $1 in __complete | completion) exec {shlex.quote(sys.executable)} -P -m cli "$@" ;; esac
printf '<'; printf '%s;' "$@"; printf '>\\n'
"""
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(./punctual completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit && compinit -u && eval "$(./punctual completion zsh)"'),
}
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
    """Types a text, and returns what the terminal shows up to what is awaited."""
    screen, keyboard = os.openpty()
    # Without a terminal of its own a shell is not one that somebody types in.
    process = subprocess.Popen(
        ["setsid", "--ctty", *command],
        cwd=home, env=environment, stdin=keyboard, stdout=keyboard, stderr=keyboard,
    )  # fmt: skip
    os.close(keyboard)

    def type_in(text: str, awaited: str) -> str:
        os.write(screen, text.encode())
        shown, deadline = b"", time.monotonic() + PATIENCE_SECONDS
        while not re.search(awaited, shown.decode(errors="replace")):
            left = deadline - time.monotonic()
            assert left > 0, f"after {text!r} the terminal shows {shown!r}"
            if select.select([screen], [], [], left)[0]:
                shown += os.read(screen, 4096)
        return shown.decode(errors="replace")

    try:
        yield type_in
    finally:
        process.kill()
        process.wait(timeout=10)
        os.close(screen)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_key_completes_what_is_typed(shell: str, home: Path, environment: dict[str, str]) -> None:
    command, setting_up = SHELLS[shell]
    with terminal(command, home, environment) as type_in:
        # The quotes keep what is typed from being taken for what is printed.
        type_in(f"{setting_up}; echo {READY[:4]}''{READY[4:]}\n", rf"{READY}\r\n")
        for typed, called in TYPED.items():
            shown = type_in(f"{typed}\t\n", r"<[^\n]*>\r\n")
            assert re.findall(r"<[^\n]*>", shown) == [called], f"{typed}: {shown!r}"
    assert not (home / "oops").exists()


def test_fish_completes_what_is_typed(home: Path, environment: dict[str, str]) -> None:
    typed = {line.replace("'a jo", "a"): called for line, called in TYPED.items()}
    asked = "\n".join(f"complete -C {shlex.quote(line)}; echo =" for line in typed)
    ended = subprocess.run(
        ["fish", "--no-config", "-c", f"./punctual completion fish | source\n{asked}"],
        cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ended.stderr == ""
    answers = [[line.partition("\t")[0] for line in each.splitlines()] for each in ended.stdout.split("=\n")[:-1]]
    expected = [called[1:-2].split(";")[-1:] for called in typed.values()]
    assert [[word.replace("\\ ", " ") for word in each] for each in answers] == expected
    assert not (home / "oops").exists()
