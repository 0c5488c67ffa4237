"""`./punctual worker` before it has joined: every mistake is one line, and nothing of the server is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from jobs.protocol import PROTOCOL_VERSION
from tests.unit.cli.server import RecordingServer
from tests.unit.forked import run_forked

ROOT = Path(__file__).resolve().parents[3]
TERMS = {"protocol": PROTOCOL_VERSION, "lease_seconds": 30, "renew_seconds": 5, "claim_wait_seconds": 20}
PROBLEM = {"type": "about:blank", "title": "x", "status": 401, "detail": "The API token is unknown.", "errors": []}


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    running = RecordingServer()
    yield running
    running.close()


def worker(directory: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PUNCTUAL_WORKER_STATE_DIR": str(directory / "state")}
    return run_forked("workers.remote", *words, environment=own | environment, directory=directory)


def complaint(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("punctual worker: ")
    return line.removeprefix("punctual worker: ")


def test_help_names_every_option(tmp_path: Path) -> None:
    shown = worker(tmp_path, "--help", COLUMNS="200").stdout
    for option in ("url", "token", "name", "pool", "slots", "cpu", "memory-mb", "disk-mb", "resource", "state-dir"):
        assert f"--{option}" in shown
    assert "PUNCTUAL_WORKER_TOKEN" in shown


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--url", "http://127.0.0.1:1"),
        ("--url", "punctual.example", "--token", "t"),
        ("--url", "http://127.0.0.1:99999", "--token", "t"),
        ("--url", "http://127.0.0.1:1", "--token", "t", "--resource", "gpu"),
        ("--url", "http://127.0.0.1:1", "--token", "t", "--slots", "0"),
        ("--url", "http://127.0.0.1:1", "--token", "t", "--network", "--network-allow", "127.0.0.0/8"),
    ],
)
def test_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = worker(tmp_path, *words)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)


@pytest.mark.parametrize("token", ["pun_a b", "pun_\u00e4", "pun_a\rb", " "])
def test_what_is_no_token_is_not_repeated(tmp_path: Path, token: str) -> None:
    ended = worker(tmp_path, "--url", "http://127.0.0.1:1", PUNCTUAL_WORKER_TOKEN=token)
    assert (ended.returncode, "Traceback" in ended.stderr, "pun_" in ended.stderr) == (2, False, False)


def test_blanks_around_a_token_are_no_part_of_it(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", PROBLEM, status=401)
    complaint(worker(tmp_path, "--url", server.url, PUNCTUAL_WORKER_TOKEN="pun_a\r\n"))
    assert server.requests[0].headers["authorization"] == "Bearer pun_a"


def test_nobody_there(tmp_path: Path) -> None:
    said = complaint(worker(tmp_path, PUNCTUAL_URL="http://127.0.0.1:1", PUNCTUAL_WORKER_TOKEN="t"))
    assert said.startswith("http://127.0.0.1:1/api/v1/ does not answer")
    assert not (tmp_path / "state").exists()


def test_somebody_else_there(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", b"<html>hello")
    said = complaint(worker(tmp_path, "--url", server.url, "--token", "t"))
    assert "does not answer as Punctual does" in said


def test_a_wrong_token(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", PROBLEM, status=401)
    assert complaint(worker(tmp_path, "--url", server.url, "--token", "t")) == "The API token is unknown."


def test_another_version(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS | {"protocol": PROTOCOL_VERSION + 1})
    assert "same release" in complaint(worker(tmp_path, "--url", server.url, "--token", "t"))


def test_no_sandbox(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    said = complaint(worker(tmp_path, "--url", server.url, "--token", "t", PUNCTUAL_BWRAP="/bin/false"))
    assert "bwrap" in said or "bubblewrap" in said


def test_a_name_that_is_taken(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    taken = PROBLEM | {"type": "urn:punctual:worker-name-taken", "detail": "Another worker is called so."}
    server.answer("POST", "/api/v1/workers/register", taken, status=409)
    assert complaint(worker(tmp_path, "--url", server.url, "--token", "t")) == "Another worker is called so."


def test_one_of_two_on_a_machine_offers_half_of_it(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    server.answer("POST", "/api/v1/workers/register", PROBLEM, status=401)
    complaint(worker(tmp_path, "--url", server.url, "--token", "t", "--workers-on-host", "2"))
    assert json.loads(server.requests[-1].body)["cpu"] == len(os.sched_getaffinity(0)) / 2


def test_one_that_gives_runs_a_network_says_so_when_it_can(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    server.answer("POST", "/api/v1/workers/register", PROBLEM, status=401)
    told = []
    for settings in ({"PUNCTUAL_WORKER_NETWORK": "1"}, {}, {"PUNCTUAL_SLIRP4NETNS": "/bin/true"}):
        words = ["--network", "--network-dns", "9.9.9.9"] if "PUNCTUAL_SLIRP4NETNS" in settings else []
        worker(tmp_path, "--url", server.url, "--token", "t", *words, **settings)
        offer = json.loads(server.requests[-1].body)
        details = offer["details"]
        assert ("network" in offer["capabilities"]) == details["network"]
        told.append((details["network"], details["network_details"]))
    (able, how), (off, why_off), (unable, why) = told
    assert (able, off, unable) == (True, False, False)
    assert how.startswith("slirp4netns 1.")
    assert why_off == "off: PUNCTUAL_WORKER_NETWORK is not set"
    assert "/bin/true is no slirp4netns" in why


def test_a_token_that_is_taken_away_ends_it(tmp_path: Path, server: RecordingServer) -> None:
    worker_id = uuid4()
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    server.answer("POST", "/api/v1/workers/register", {"worker_id": str(worker_id), "incarnation": 1}, status=201)
    server.answer("POST", f"/api/v1/workers/{worker_id}/claim", {"executions": [], "orders": []})
    for verb in ("claim", "heartbeat", "drain", "leave"):
        server.answer("POST", f"/api/v1/workers/{worker_id}/{verb}", PROBLEM, status=401)
    ended = worker(tmp_path, "--url", server.url, "--token", "t")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    assert ended.stderr.splitlines()[-1] == "punctual worker: The API token is unknown."


def test_nothing_of_the_server_is_loaded() -> None:
    code = (
        "import sys, workers.remote; "
        "print([m for m in ('django', 'celery', 'kombu', 'boto3', 'psycopg', 'redis') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
