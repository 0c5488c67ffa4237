"""The commands as people type them, where they go wrong: one sentence, a non-zero exit, nothing left running."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def run(environment: dict[str, str], *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-P", "-m", "scheduler_project.embedded", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_taken_port_is_one_sentence(environment: dict[str, str]) -> None:
    port = environment["PUNCTUAL_WEB_PORT"]
    with socket.create_server(("127.0.0.1", int(port))):
        code, shown = run(environment, "up", "--detach")

    assert code == 1
    assert shown == (
        f"punctual: The web server needs port {port}, which another program uses: "
        "stop that program, or set PUNCTUAL_WEB_PORT to another port.\n"
    )


def test_a_machine_without_user_namespaces_is_told_what_to_do(environment: dict[str, str]) -> None:
    forbidding = ("unshare", "--user", "--map-root-user", "sh", "-c")
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'

    code, shown = run(environment, "up", "--detach", prefix=(*forbidding, script, "sh"))

    assert code == 1
    assert shown.count("\n") == 1
    assert "user namespaces" in shown
    assert "sysctl -w user.max_user_namespaces=15000" in shown


def test_nothing_is_managed_while_nothing_runs(environment: dict[str, str]) -> None:
    code, shown = run(environment, "stack", "manage", "check", "--help")
    assert (code, shown.count("\n")) == (1, 1)
    assert "start it with `./punctual up`" in shown


@pytest.mark.parametrize("content", ["", '{"secrets": {', "[]"])
def test_a_broken_configuration_is_one_sentence(environment: dict[str, str], content: str) -> None:
    var = Path(environment["PUNCTUAL_VAR"])
    var.mkdir(mode=0o700)
    (var / "config.json").write_text(content)

    code, shown = run(environment, "up", "--detach")

    assert code == 1
    assert shown.startswith(f"punctual: {var}/config.json is damaged")
    assert shown.count("\n") == 1


def test_a_trace_is_shown_only_to_who_asks_for_it(environment: dict[str, str]) -> None:
    Path(environment["PUNCTUAL_VAR"]).write_text("")

    code, shown = run(environment, "up")
    assert (code, shown.count("\n"), "Traceback" in shown) == (1, 1, False)

    code, shown = run({**environment, "PUNCTUAL_TRACEBACK": "1"}, "up")
    assert (code, "Traceback" in shown) == (1, True)


def test_before_anything_was_started(environment: dict[str, str]) -> None:
    assert run(environment, "down") == (0, "Nothing is running.\n")
    code, shown = run(environment, "stack", "status")
    assert (code, shown) == (1, "Nothing is running. Start it with `./punctual up`.\n")
    code, shown = run(environment, "stack", "logs")
    assert code == 1
    assert "There are no logs yet" in shown
    assert not Path(environment["PUNCTUAL_VAR"]).exists()
