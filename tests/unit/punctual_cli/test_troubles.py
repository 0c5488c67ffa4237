"""Unreachable servers, full disks, closed streams: one line and one exit code each."""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from punctual_cli.__main__ import main
from tests.unit.punctual_cli.server import RecordingServer

ROOT = Path(__file__).resolve().parents[3]
JOB_ID = "0198c0de-0000-7000-8000-000000000001"
PAGE = {"results": [{"id": "J", "name": "nightly", "status": "x"}]}
ALONE = (
    "import sys; sys.path[:0] = [sys.argv.pop(1)]; from punctual_cli.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


@contextmanager
def odd_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Whatever is served to whoever connects, until the test is over."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                held.append(connection)
                serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=10)
            for connection in held:
                connection.close()


def die_in_the_middle(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"results": ['
    )
    connection.close()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual_client.transport.REQUEST_TIMEOUT", httpx.Timeout(0.3))
    monkeypatch.setattr("punctual_client.transport.RETRY_PAUSES_SECONDS", (0.01,))
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    ("serve", "words"),
    [(None, "Connection refused"), (lambda _: None, "did not answer in time"), (die_in_the_middle, "peer closed")],
    ids=["refuses", "says nothing", "dies"],
)
def test_a_dead_server_is_one_line_and_a_code(
    serve: Callable[[socket.socket], None] | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with odd_server(serve or (lambda _: None)) as url:
        monkeypatch.setenv("PUNCTUAL_URL", url if serve else "http://127.0.0.1:1")
        assert main(["jobs"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err
    assert "punctual doctor" in printed.err


def test_a_full_disk_is_one_line_and_no_success(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": PAGE["results"], "next": None})
    environment = os.environ | {"PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "punctual_cli", "jobs"],
            cwd=ROOT, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr


@pytest.mark.parametrize("words", [["jobs"], ["jobs", "-o", "json"], ["show", JOB_ID], ["run", JOB_ID]])
def test_a_stdout_that_is_closed_is_one_line_and_no_success(server: RecordingServer, words: list[str]) -> None:
    job = {"id": JOB_ID, "name": "nightly", "status": "x"}
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": [job], "next": None})
    server.answer("GET", f"/api/v1/jobs/{JOB_ID}", job)
    execution = {"id": "E", "job_id": JOB_ID, "status": "ready", "attempt": 0}
    server.answer("POST", f"/api/v1/jobs/{JOB_ID}/execute", execution, status=201)
    ended = closing(">&-", *words, url=server.url)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "The output could not be written" in ended.stderr


def test_messages_to_a_closed_stderr_are_dropped(server: RecordingServer) -> None:
    server.answer("POST", f"/api/v1/jobs/{JOB_ID}/pause", {"id": JOB_ID, "name": "nightly", "status": "paused"})
    ended = closing("2>&-", "pause", JOB_ID, url=server.url)
    assert (ended.returncode, ended.stdout) == (0, "")
    asked = closing("<&-", "delete", JOB_ID, url=server.url)
    assert "Traceback" not in asked.stderr


def closing(descriptor: str, *words: str, url: str) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it with that descriptor closed."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m punctual_cli "$@" {descriptor}', sys.executable, *words],
        cwd=ROOT, capture_output=True,
        env=os.environ | {"PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": "t"}, text=True, timeout=60, check=False,
    )  # fmt: skip


def distributions_of(*names: str) -> set[str]:
    """These and all that they need."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform or Python
        found.add(name)
        # What only an extra needs is not needed.
        left += [match[0] for line in needed if "extra ==" not in line and (match := re.match(r"[\w.-]+", line))]
    return found


def test_the_command_line_needs_its_own_packages_and_no_django(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": PAGE["results"], "next": None})
    for name in distributions_of("httpx", "rich", "typer", "pyyaml"):
        for file in importlib.metadata.files(name) or []:
            top = Path(file.parts[0])
            if not file.parts[0].startswith((".", "_pytest")) and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(
                    Path(str(file.locate())).parents[len(file.parts) - 2]
                    if len(file.parts) > 1
                    else Path(str(file.locate()))
                )
    for ours in ("punctual_cli", "punctual_client"):
        (tmp_path / ours).symlink_to(ROOT / ours)
    environment = {"PATH": os.environ["PATH"], "PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t"}

    def alone(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", program, str(tmp_path), *words],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    listed = alone(ALONE, "jobs", "-o", "yaml")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "name: nightly" in listed.stdout
    absent = alone("import sys; sys.path[:0] = [sys.argv[1]]; import punctual_client, django")
    assert "No module named 'django'" in absent.stderr
