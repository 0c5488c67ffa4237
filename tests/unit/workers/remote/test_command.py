"""`./punctual worker` up to its registration: every error is one line, and no server module is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from jobs.domain.worker_protocol import PROTOCOL_VERSION
from tests.support.forked import run_forked
from tests.unit.punctual_cli.server import RecordingServer

ROOT = Path(__file__).resolve().parents[4]
TERMS = {
    "protocol": PROTOCOL_VERSION,
    "lease_seconds": 30,
    "renew_seconds": 5,
    "claim_wait_seconds": 20,
    "token_expires_at": None,
}
PROBLEM = {"type": "about:blank", "title": "x", "status": 401, "detail": "The API token is unknown.", "errors": []}


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    running = RecordingServer()
    yield running
    running.close()


def worker(directory: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PUNCTUAL_WORKER_STATE_DIR": str(directory / "state")}
    return run_forked("workers.remote.command", *options, environment=own | environment, directory=directory)


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
    "options",
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
def test_wrong_usage(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = worker(tmp_path, *options)
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False)


def test_token_is_sent_unencrypted_only_if_allowed(tmp_path: Path) -> None:
    options = ("--url", "http://punctual.invalid", "--token", "t")
    refused = worker(tmp_path, *options, COLUMNS="300")
    assert (refused.returncode, "PUNCTUAL_ALLOW_PLAINTEXT=http" in refused.stderr) == (2, True), refused.stderr
    allowed = worker(tmp_path, *options, COLUMNS="300", PUNCTUAL_ALLOW_PLAINTEXT="redis, http")
    assert "PUNCTUAL_ALLOW_PLAINTEXT" not in allowed.stderr


@pytest.mark.parametrize("token", ["pun_a b", "pun_\u00e4", "pun_a\rb", " "])
def test_invalid_token_is_rejected_and_not_printed(tmp_path: Path, token: str) -> None:
    ended = worker(tmp_path, "--url", "http://127.0.0.1:1", PUNCTUAL_WORKER_TOKEN=token)
    assert (ended.returncode, "Traceback" in ended.stderr, "pun_" in ended.stderr) == (2, False, False)


def test_token_is_stripped(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", PROBLEM, status=401)
    complaint(worker(tmp_path, "--url", server.url, PUNCTUAL_WORKER_TOKEN="pun_a\r\n"))
    assert server.requests[0].headers["authorization"] == "Bearer pun_a"


def test_server_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    message = complaint(worker(tmp_path, PUNCTUAL_URL="http://127.0.0.1:1", PUNCTUAL_WORKER_TOKEN="t"))
    assert message.startswith("http://127.0.0.1:1/api/v1/ does not answer")
    assert not (tmp_path / "state").exists()


def test_server_that_is_not_punctual_is_reported(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", b"<html>hello")
    message = complaint(worker(tmp_path, "--url", server.url, "--token", "t"))
    assert "does not answer as Punctual does" in message


def test_rejected_token_is_reported(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", PROBLEM, status=401)
    assert complaint(worker(tmp_path, "--url", server.url, "--token", "t")) == "The API token is unknown."


def test_other_protocol_version_is_refused(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS | {"protocol": PROTOCOL_VERSION + 1})
    assert "same release" in complaint(worker(tmp_path, "--url", server.url, "--token", "t"))


def test_missing_sandbox_is_reported(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    message = complaint(worker(tmp_path, "--url", server.url, "--token", "t", PUNCTUAL_BWRAP="/bin/false"))
    assert "bwrap" in message or "bubblewrap" in message


def test_taken_name_is_reported(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    taken = PROBLEM | {"type": "urn:punctual:worker-name-taken", "detail": "Another worker is called so."}
    server.answer("POST", "/api/v1/workers/register", taken, status=409)
    assert complaint(worker(tmp_path, "--url", server.url, "--token", "t")) == "Another worker is called so."


def test_two_workers_on_host_offer_half_the_machine_each(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    server.answer("POST", "/api/v1/workers/register", PROBLEM, status=401)
    complaint(worker(tmp_path, "--url", server.url, "--token", "t", "--workers-on-host", "2"))
    assert json.loads(server.requests[-1].body)["cpu"] == len(os.sched_getaffinity(0)) / 2


def test_worker_warns_of_token_that_expires_soon(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("POST", "/api/v1/workers/register", PROBLEM, status=401)
    warned = []
    for days in (3, 300):
        until = datetime.now(UTC) + timedelta(days=days, hours=1)
        server.answer("GET", "/api/v1/workers/terms", TERMS | {"token_expires_at": until.isoformat()})
        ended = worker(tmp_path, "--url", server.url, "--token", "t")
        warned.append(f"expires on {until:%Y-%m-%d}" in ended.stderr)
    assert warned == [True, False]


def test_network_capability_depends_on_slirp4netns(tmp_path: Path, server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    server.answer("POST", "/api/v1/workers/register", PROBLEM, status=401)
    offered = []
    for settings in ({"PUNCTUAL_WORKER_NETWORK": "1"}, {}, {"PUNCTUAL_SLIRP4NETNS": "/bin/true"}):
        options = ["--network", "--network-dns", "9.9.9.9"] if "PUNCTUAL_SLIRP4NETNS" in settings else []
        worker(tmp_path, "--url", server.url, "--token", "t", *options, **settings)
        offer = json.loads(server.requests[-1].body)
        details = offer["details"]
        assert ("network" in offer["capabilities"]) == details["network"]
        offered.append((details["network"], details["network_details"]))
    (able, how), (off, why_off), (unable, why) = offered
    assert (able, off, unable) == (True, False, False)
    assert how.startswith("slirp4netns 1.")
    assert why_off == "off: PUNCTUAL_WORKER_NETWORK is not set"
    assert "/bin/true is not a slirp4netns" in why


def test_revoked_token_stops_the_worker(tmp_path: Path, server: RecordingServer) -> None:
    worker_id = uuid4()
    server.answer("GET", "/api/v1/workers/terms", TERMS)
    server.answer(
        "POST",
        "/api/v1/workers/register",
        {"worker_id": str(worker_id), "incarnation": 1, "lease_seconds": 30},
        status=201,
    )
    server.answer("POST", f"/api/v1/workers/{worker_id}/claim", {"executions": [], "orders": []})
    for verb in ("claim", "heartbeat", "drain", "leave"):
        server.answer("POST", f"/api/v1/workers/{worker_id}/{verb}", PROBLEM, status=401)
    ended = worker(tmp_path, "--url", server.url, "--token", "t")
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    assert ended.stderr.splitlines()[-1] == "punctual worker: The API token is unknown."


def test_worker_does_not_import_server_modules() -> None:
    code = (
        "import sys, workers.remote.command; "
        "print([m for m in ('django', 'celery', 'kombu', 'boto3', 'psycopg', 'redis') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
