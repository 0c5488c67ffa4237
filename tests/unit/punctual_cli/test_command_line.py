"""The command as a process: one line per error, a code per kind, no server needed to ask for help."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from punctual_cli import VERSION
from tests.support.forked import run_forked
from tests.unit.punctual_cli.server import RecordingServer

JOB = {
    "id": "J",
    "name": "evil\x1b[2J\nname",
    "status": "scheduled",
    "schedules": [{"next_instant": "2030-01-01T00:00:00Z"}],
}


def punctual(*words: str, url: str | None = None, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PUNCTUAL_")}
    environment["PUNCTUAL_VAR"] = environment["XDG_CONFIG_HOME"] = "/nonexistent"
    if url:
        environment |= {"PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": "t"}
    return run_forked("punctual_cli", *words, environment=environment, typed=typed)


def test_help_needs_no_server() -> None:
    shown = punctual("--help")
    assert shown.returncode == 0
    for words in ("submit", "outputs", "Exit codes", "punctual submit --help"):
        assert words in shown.stdout
    assert "./punctual" not in shown.stdout


def test_in_a_checkout_hints_and_help_name_its_wrapper() -> None:
    def in_checkout(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PUNCTUAL_PROGRAM": "./punctual", "PUNCTUAL_VAR": "/nonexistent"}
        command = [sys.executable, "-m", "punctual_cli", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    shown = in_checkout("--help")
    assert shown.stdout.startswith("Usage: ./punctual ")
    for words in ("up ", "--detach", "down", "stack", "status, logs", "test", "submit", "outputs", "Exit codes"):
        assert words in shown.stdout
    assert "run ./punctual up, run ./punctual login" in in_checkout("jobs").stderr
    assert "See ./punctual tokens create --help." in in_checkout("tokens", "create").stderr
    misplaced = in_checkout("--no-color", "up")
    assert (misplaced.returncode, misplaced.stderr) == (2, "punctual: up must be the first word: ./punctual up\n")


def test_the_version_is_that_of_the_command_and_needs_no_server() -> None:
    shown = punctual("--version")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"punctual {VERSION}\n", "")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["jobs"], 3, "run punctual login"),
        (["no-such-command"], 2, "no-such-command"),
        (["jbos"], 2, "Did you mean 'jobs'? See punctual --help."),
        (["audit"], 2, "Missing command: use changes or attempts or firings. See punctual audit --help."),
        (["tokens", "create"], 2, "See punctual tokens create --help."),
        (["completion", "csh"], 2, "'shell': 'csh' is not one of 'bash', 'zsh', 'fish'."),
        (["executions", "--since", "yesterday"], 2, "or 1h for an hour ago"),
        (["login", "http://127.0.0.1:1", "--scope", "worker"], 2, "tokens create --scope worker"),
        (["submit"], 2, "FILE"),
        (["submit", "x.sh", "--priority", "10"], 2, "priority"),
        (["submit", "x.sh", "--every", "soon"], 2, "not a duration"),
        (["submit", "x.sh", "--tz", "Europe/Paris"], 2, "--tz has no meaning"),
        (["submit", "x.sh", "--backoff", "5s"], 2, "--backoff has no meaning"),
        (["submit", "x.sh", "--retry-on", "75"], 2, "--retry-on has no meaning"),
        (["submit", "x.sh", "--retry-on", "256"], 2, "255"),
        (["retry", "x"], 2, "not the id of an execution"),
        (["dlq", "redrive", "x"], 2, "not the id of an execution"),
        (["dlq", "--status", "gone"], 2, "gone"),
        (["cancel"], 2, "either a job or"),
        (["backfill", "x", "--to", "1h"], 2, "--to has no meaning"),
        (["backfill", "x", "--cancel", "y"], 2, "not the id of a backfill"),
        (["outputs", "delete", ".."], 2, "not the id of an execution: punctual executions --job .. lists"),
        (["retry", "a b"], 2, "'a b' is not the id of an execution: punctual executions --job 'a b' lists"),
    ],
)
def test_an_error_is_one_line_and_a_code(words: list[str], code: int, sentence: str) -> None:
    ended = punctual(*words)
    assert ended.returncode == code
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("punctual: ")
    assert sentence in ended.stderr


def test_a_hostile_name_is_one_harmless_cell_and_exact_in_json(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": [JOB], "next": None})
    table = punctual("jobs", url=server.url)
    assert table.stdout.splitlines()[1] == "J\tevil\\x1b[2J\\x0aname\tscheduled\t2030-01-01 00:00:00Z"
    assert json.loads(punctual("jobs", "-o", "json", url=server.url).stdout) == [JOB]


def test_two_jobs_of_one_name_are_not_guessed_between(server: RecordingServer) -> None:
    twins = [JOB | {"id": name, "name": "twin", "owner": "ann"} for name in ("a", "b")]
    server.answer("GET", "/api/v1/jobs?name=twin&limit=100", {"results": twins, "next": None})
    ended = punctual("cancel", "twin", "--yes", url=server.url)
    assert ended.returncode == 4
    assert "2 jobs are called 'twin', use an id: a of ann, b of ann\n" in ended.stderr
    assert [asked.method for asked in server.requests] == ["GET"]


@pytest.mark.parametrize(("owners", "meant"), [(["me", "mate"], "a"), (["mate", "me"], "b"), (["mate", "other"], None)])
def test_a_name_prefers_the_callers_own_job(server: RecordingServer, owners: list[str], meant: str | None) -> None:
    named = [JOB | {"id": name, "name": "twin", "owner": owner} for name, owner in zip("ab", owners, strict=True)]
    server.answer("GET", "/api/v1/jobs?name=twin&limit=100", {"results": named, "next": None})
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    server.answer("PUT", f"/api/v1/jobs/{meant}/cancel", JOB)
    ended = punctual("cancel", "twin", "--yes", url=server.url)
    assert (ended.returncode, server.requests[-1].path) == (
        (4, "/api/v1/usage") if meant is None else (0, f"/api/v1/jobs/{meant}/cancel")
    ), ended.stderr


def test_a_refused_login_token_is_reported_as_refused(server: RecordingServer) -> None:
    problem = {"detail": "The API token is unknown; send a valid one.", "type": "about:blank"}
    server.answer("GET", "/api/v1/tokens/self", problem, status=401)
    ended = punctual("login", server.url, "--token", typed="wrong\n")
    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)
    assert "does not accept this token" in ended.stderr
    assert "PUNCTUAL_TOKEN" not in ended.stderr


def test_a_job_is_sent_as_the_words_say(server: RecordingServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = tmp_path_factory.mktemp("script") / "nightly.sh"
    script.write_text("echo hi\n")
    upstream = "0198c0de-0000-7000-8000-000000000001"
    server.answer("POST", "/api/v1/jobs", JOB, status=201)
    ended = punctual(
        "submit", str(script), "--arg=--day", "--env", "A=b", "--every", "5m", "--cron", "0 3 * * *",
        "--tz", "Europe/Paris", "--at", "2030-01-31T09:00", "--after", f"{upstream}:completion", "--cpu", "0.5",
        "--memory", "256", "--disk", "64", "--resource", "gpu=2",
        "--timeout", "10m", "--priority", "7", "--queue", "q", "--retries", "2",
        "--backoff", "5", "--max-concurrency", "3", url=server.url,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "J\n")
    assert json.loads(server.requests[0].body) == {
        "name": "nightly",
        "runtime": "bash",
        "script": "echo hi\n",
        "args": ["--day"],
        "env": {"A": "b"},
        "schedules": [
            {"every_seconds": 300},
            {"cron": "0 3 * * *", "timezone": "Europe/Paris"},
            {"at": "2030-01-31T08:00:00Z"},
        ],
        "dependencies": [{"job": upstream, "condition": "completion"}],
        "requirements": {"cpu": 0.5, "memory_mb": 256, "disk_mb": 64, "resources": {"gpu": 2}},
        "timeout_seconds": 600,
        "priority": 7,
        "queue": "q",
        "retry": {"max_attempts": 3, "backoff_seconds": 5},
        "max_concurrency": 3,
    }


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_error(server: RecordingServer, unbuffered: str) -> None:
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": [JOB] * 50, "next": None})
    environment = os.environ | {"PUNCTUAL_URL": server.url, "PUNCTUAL_TOKEN": "t", "PYTHONUNBUFFERED": unbuffered}
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "punctual_cli", "jobs"],
        env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
