"""Failing commands print one sentence, exit with non-zero and leave nothing running."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def run(environment: dict[str, str], *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-P", "-m", "scheduler_project.localstack", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_taken_port_is_reported_in_one_sentence(environment: dict[str, str]) -> None:
    port = environment["PUNCTUAL_WEB_PORT"]
    with socket.create_server(("127.0.0.1", int(port))):
        code, printed = run(environment, "up", "--detach")

    assert code == 1
    assert printed == (
        f"punctual: The web server needs port {port}, which another program uses: "
        "stop that program, or set PUNCTUAL_WEB_PORT to another port.\n"
    )


def test_missing_user_namespaces_are_reported_with_a_remedy(environment: dict[str, str]) -> None:
    unshare = ("unshare", "--user", "--map-root-user", "sh", "-c")
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'

    code, printed = run(environment, "up", "--detach", prefix=(*unshare, script, "sh"))

    assert code == 1
    assert printed.count("\n") == 1
    assert "user namespaces" in printed
    assert "sysctl -w user.max_user_namespaces=15000" in printed


def test_manage_needs_a_running_stack(environment: dict[str, str]) -> None:
    code, printed = run(environment, "stack", "manage", "check", "--help")
    assert (code, printed.count("\n")) == (1, 1)
    assert "start it with `./punctual up`" in printed


@pytest.mark.parametrize("content", ["", '{"secrets": {', "[]"])
def test_damaged_configuration_is_reported_in_one_sentence(environment: dict[str, str], content: str) -> None:
    var = Path(environment["PUNCTUAL_VAR"])
    var.mkdir(mode=0o700)
    (var / "config.json").write_text(content)

    code, printed = run(environment, "up", "--detach")

    assert code == 1
    assert printed.startswith(f"punctual: {var}/config.json is damaged")
    assert printed.count("\n") == 1


def test_traceback_is_printed_only_on_request(environment: dict[str, str]) -> None:
    Path(environment["PUNCTUAL_VAR"]).write_text("")

    code, printed = run(environment, "up")
    assert (code, printed.count("\n"), "Traceback" in printed) == (1, 1, False)

    code, printed = run({**environment, "PUNCTUAL_TRACEBACK": "1"}, "up")
    assert (code, "Traceback" in printed) == (1, True)


def test_commands_before_the_first_start(environment: dict[str, str]) -> None:
    assert run(environment, "down") == (0, "Nothing is running.\n")
    code, printed = run(environment, "stack", "status")
    assert (code, printed) == (1, "Nothing is running. Start it with `./punctual up`.\n")
    code, printed = run(environment, "stack", "logs")
    assert code == 1
    assert "There are no logs yet" in printed
    assert not Path(environment["PUNCTUAL_VAR"]).exists()
