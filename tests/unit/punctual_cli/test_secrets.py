"""`secrets` and secrets of jobs: sources of a value, which is never printed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import read_until_closed
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

SECRET_ID = "0198c0de-0000-7000-8000-000000000001"
SECRET: dict[str, object] = {
    "id": SECRET_ID, "name": "db", "owner": "ann", "version": 1,
    "created_at": "2030-01-01T00:00:00Z", "updated_at": "2030-01-01T00:05:00Z",
}  # fmt: skip
JOB: dict[str, object] = {"id": SECRET_ID, "name": "report", "status": "scheduled", "schedules": []}
NAMED = "/api/v1/secrets?name=db&limit=2"


def bodies(server: RecordingServer) -> list[tuple[str, str, object]]:
    return [(each.method, each.path, json.loads(each.body) if each.body else None) for each in server.requests]


def test_secrets_are_listed(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/secrets?limit=50", {"results": [SECRET], "next": None})
    ended = punctual("secrets", url=server.url)
    assert ended.stdout.splitlines()[1] == f"{SECRET_ID}\tdb\tann\t1\t2030-01-01 00:05:00Z"
    assert json.loads(punctual("secrets", "-o", "json", url=server.url).stdout) == [SECRET]


@pytest.mark.parametrize(
    ("typed", "sent"), [("hunter2", "hunter2"), ("hunter2\n", "hunter2"), (" hunter2\n\n", " hunter2\n")]
)
def test_a_value_comes_from_standard_input_without_its_last_line_end(
    server: RecordingServer, typed: str, sent: str
) -> None:
    server.answer("POST", "/api/v1/secrets", SECRET, status=201)
    ended = punctual("secrets", "set", "db", url=server.url, typed=typed)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "Created the secret db.\n")
    assert bodies(server) == [("POST", "/api/v1/secrets", {"name": "db", "value": sent})]


def test_a_value_from_a_file_is_exact(server: RecordingServer, tmp_path: Path) -> None:
    server.answer("POST", "/api/v1/secrets", SECRET, status=201)
    (tmp_path / "key").write_bytes(b"hunter2\r\n\n")
    assert punctual("secrets", "set", "db", "--file", str(tmp_path / "key"), url=server.url).returncode == 0
    assert bodies(server)[0][2] == {"name": "db", "value": "hunter2\r\n\n"}


def test_setting_an_existing_secret_rotates_it(server: RecordingServer) -> None:
    server.answer("POST", "/api/v1/secrets", {"detail": "There is a secret called db already."}, status=409)
    server.answer("GET", NAMED, {"results": [SECRET], "next": None})
    server.answer("PUT", f"/api/v1/secrets/{SECRET_ID}", SECRET | {"version": 2})
    ended = punctual("secrets", "set", "db", url=server.url, typed="hunter2\n")
    assert (ended.returncode, ended.stderr) == (0, "The secret db has a new value.\n")
    assert bodies(server)[-1] == ("PUT", f"/api/v1/secrets/{SECRET_ID}", {"value": "hunter2"})
    punctual("secrets", "set", SECRET_ID, url=server.url, typed="hunter3\n")
    assert bodies(server)[-1] == ("PUT", f"/api/v1/secrets/{SECRET_ID}", {"value": "hunter3"})


@pytest.mark.parametrize("found", [[], [SECRET, SECRET]])
def test_an_ambiguous_or_foreign_secret_is_not_changed(server: RecordingServer, found: list[object]) -> None:
    server.answer("POST", "/api/v1/secrets", {"detail": "No secrets can be kept here yet."}, status=409)
    server.answer("GET", NAMED, {"results": found, "next": None})
    ended = punctual("secrets", "set", "db", url=server.url, typed="hunter2\n")
    assert ended.returncode == 4
    assert ("Several owners" if found else "No secrets can be kept") in ended.stderr
    assert "hunter2" not in ended.stderr
    assert [method for method, _, _ in bodies(server)] == ["POST", "GET"]


def test_a_refused_value_is_not_repeated(server: RecordingServer) -> None:
    refusal = {"detail": "value: too short", "errors": [{"field": "value", "message": "too short"}]}
    server.answer("POST", "/api/v1/secrets", refusal, status=400)
    ended = punctual("secrets", "set", "db", url=server.url, typed="hunter2\n")
    assert (ended.returncode, ended.stderr) == (4, "punctual: value: too short\n")


@pytest.mark.parametrize(
    ("content", "words"), [(b"hunter2\xff", "not UTF-8"), (b"x" * 65_538, "more than the 65536 bytes"), (None, "read")]
)
def test_an_invalid_value_is_not_sent(
    server: RecordingServer, tmp_path: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    ended = punctual("secrets", "set", "db", "--file", str(tmp_path / "key"), url=server.url)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "hunter2" not in ended.stderr
    assert server.requests == []


def test_a_value_is_typed_twice_and_not_shown(server: RecordingServer) -> None:
    server.answer("POST", "/api/v1/secrets", SECRET, status=201)
    ours, theirs = pty.openpty()
    environment = os.environ | {"PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t"}
    command = [sys.executable, "-m", "punctual_cli", "secrets", "set", "db"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as running:
        os.close(theirs)
        shown = b""
        for prompt in (b"Value: ", b"Repeat for confirmation: "):
            while prompt not in shown:
                shown += os.read(ours, 1024)
            os.write(ours, b"hunter2\n")
        assert running.wait(30) == 0
        shown += read_until_closed(ours)
    os.close(ours)
    assert b"hunter2" not in shown
    assert bodies(server) == [("POST", "/api/v1/secrets", {"name": "db", "value": "hunter2"})]


def test_a_secret_is_deleted_by_its_name(server: RecordingServer) -> None:
    server.answer("GET", NAMED, {"results": [SECRET], "next": None})
    server.answer("DELETE", f"/api/v1/secrets/{SECRET_ID}", {}, status=200)
    assert punctual("secrets", "delete", "db", url=server.url, typed="").returncode == 2, "nobody to ask"
    ended = punctual("secrets", "delete", "db", "--yes", url=server.url)
    assert (ended.returncode, ended.stderr) == (0, "Deleted db.\n")
    assert bodies(server)[-1][:2] == ("DELETE", f"/api/v1/secrets/{SECRET_ID}")


def test_an_unknown_secret_is_not_deleted(server: RecordingServer) -> None:
    server.answer("GET", NAMED, {"results": [], "next": None})
    ended = punctual("secrets", "delete", "db", "--yes", url=server.url)
    assert (ended.returncode, "no secret called 'db'" in ended.stderr) == (4, True)


def test_a_job_receives_secrets_by_name(server: RecordingServer, tmp_path: Path) -> None:
    script = tmp_path / "report.sh"
    script.write_text("true")
    given = ["--secret", "DB=db", "--secret", "KEY=a=b", "--secret-file", "tls/key.pem=tls"]
    wanted = [{"name": "db", "env": "DB"}, {"name": "a=b", "env": "KEY"}, {"name": "tls", "file": "tls/key.pem"}]
    server.answer("POST", "/api/v1/jobs", JOB, status=201)
    assert punctual("submit", str(script), *given, url=server.url).returncode == 0
    body = bodies(server)[-1][2]
    assert isinstance(body, dict)
    assert body["secrets"] == wanted
    server.answer("PATCH", f"/api/v1/jobs/{SECRET_ID}", JOB)
    for words, sent in ((given, wanted), (["--no-secrets"], [])):
        assert punctual("edit", SECRET_ID, *words, url=server.url).returncode == 0
        assert bodies(server)[-1][2] == {"secrets": sent}


@pytest.mark.parametrize(
    "words", [["--secret", "DB"], ["--secret", "=db"], ["--secret-file", "a="], ["--no-secrets", "--secret", "A=b"]]
)
def test_an_invalid_secret_option_is_not_sent(server: RecordingServer, words: list[str]) -> None:
    assert punctual("edit", SECRET_ID, *words, url=server.url).returncode == 2
    assert server.requests == []
