"""Reports of REST workers: every write is fenced and atomic."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.execution import transitions
from jobs.models import LogChunk, Output
from tests.integration.api.conftest import API
from tests.support.factories import hold_of, make_execution, make_job
from tests.support.rest_workers import STALE, RestWorker, chunk, join, worker_client

pytestmark = pytest.mark.django_db
DATA = b"some bytes\0\xff"
SHA256 = hashlib.sha256(DATA).hexdigest()
WORDS: dict[str, dict[str, Any]] = {
    "start": {},
    "logs": {"chunks": [chunk(0, DATA)], "progress": {"percent": 1, "message": "x"}},
    "outputs": {"size": len(DATA), "sha256": SHA256},
    "complete": {"reason": "exit", "exit_code": 0},
}


@pytest.fixture
def worker(owner: User) -> RestWorker:
    return join()


@pytest.fixture
def execution(owner: User, worker: RestWorker) -> Any:
    """Create an execution of the owner, claimed by the worker."""
    return worker.take(make_execution(job=make_job(owner=owner)))


def test_run_from_start_to_end(client: APIClient, worker: RestWorker, execution: Any, bucket: None) -> None:
    for _ in range(2):
        assert worker.report(execution, "start", receipt={"cgroup": "v2"}).status_code == 204
        logged = worker.report(execution, "logs", chunks=[chunk(0, b"one\n"), chunk(1, DATA, stream="stderr")])
        assert logged.status_code == 204
    announced = worker.report(execution, "outputs", size=len(DATA), sha256=SHA256)
    assert announced.status_code == 201
    upload = announced.json()
    assert httpx.put(upload["url"], content=b"x" * len(DATA), headers=upload["headers"]).is_client_error
    assert httpx.put(upload["url"], content=DATA, headers=upload["headers"]).is_success
    file = {"name": "a/b.txt", "size": len(DATA), "sha256": SHA256}
    report = {"reason": "exit", "exit_code": 0, "result": {"n": 1}, "outputs": [file], "cpu_seconds": 0.5}
    ended = worker.report(execution, "complete", **report)
    assert (ended.status_code, ended.json()["status"]) == (200, "succeeded")

    values = client.get(f"{API}/executions/{execution.id}").json()
    assert (values["status"], values["result"], values["exit_code"]) == ("succeeded", {"n": 1}, 0)
    log = b"".join(client.get(f"{API}/executions/{execution.id}/logs"))
    assert log == b"one\n" + DATA
    (listed,) = client.get(f"{API}/executions/{execution.id}/outputs").json()["results"]
    assert (listed["name"], httpx.get(listed["url"]).content) == ("a/b.txt", DATA)
    # Repeated after a lost response: rejected without effect.
    assert worker.report(execution, "complete", **report).json()["type"] == STALE
    assert Output.objects.count() == 1


def test_progress_is_shown_while_running(client: APIClient, worker: RestWorker, execution: Any) -> None:
    address = f"{API}/executions/{execution.id}"
    assert client.get(address).json()["progress"] is None
    worker.report(execution, "start")
    given_progress = {"percent": 42.5, "message": "a\x1b[2Jb\nc"}
    assert worker.report(execution, "logs", chunks=[chunk(0, b"x")], progress=given_progress).status_code == 204
    values = client.get(address).json()["progress"]
    assert (values.pop("at")[:2], values) == ("20", {"percent": 42.5, "message": "a\ufffd[2Jb\ufffdc"})
    assert worker.report(execution, "logs", chunks=[], progress={"percent": None, "message": "x"}).status_code == 204
    listed = client.get(f"{API}/executions").json()["results"][0]["progress"]
    assert (listed["percent"], listed["message"]) == (None, "x")
    assert worker.report(execution, "logs", chunks=[chunk(1, b"y")], progress=None).status_code == 204
    assert client.get(address).json()["progress"] == listed


@pytest.mark.parametrize("verb", WORDS)
@pytest.mark.parametrize("wrong", [{"attempt": 2}, {"incarnation": 7}, "given away", "another execution"])
def test_stale_attempt_cannot_be_written(worker: RestWorker, execution: Any, verb: str, wrong: Any) -> None:
    transitions.start(hold_of(execution), {})
    address, changes = execution.id, {}
    if isinstance(wrong, dict):
        changes = wrong
    elif wrong == "given away":
        transitions.lose_executions({worker.id: None})
    else:
        address = uuid4()
    fence = {"worker_id": str(worker.id), "incarnation": worker.registration.incarnation, "attempt": 1}
    body = fence | WORDS[verb] | changes
    response = worker.client.post(f"{API}/executions/{address}/{verb}", body, format="json")
    assert (response.status_code, response.json()["type"]) == (409, STALE)
    assert not LogChunk.objects.exists()
    execution.refresh_from_db()
    assert execution.state == ("ready" if wrong == "given away" else "running")


@pytest.mark.parametrize("verb", WORDS)
def test_token_cannot_report_for_worker_of_other_token(worker: RestWorker, execution: Any, verb: str) -> None:
    stranger = RestWorker(worker_client()[0], worker.registration)
    assert stranger.report(execution, verb, **WORDS[verb]).status_code == 404
    execution.refresh_from_db()
    assert execution.state == "claimed"
    assert not LogChunk.objects.exists()


def test_outputs_must_be_stored_before_completion(worker: RestWorker, execution: Any, bucket: None) -> None:
    worker.report(execution, "start")
    upload = worker.report(execution, "outputs", size=len(DATA), sha256=SHA256).json()
    httpx.put(upload["url"], content=DATA, headers=upload["headers"]).raise_for_status()
    stored = {"name": "a", "size": len(DATA), "sha256": SHA256}
    for wrong in ({"sha256": "0" * 64}, {"size": 3}):
        files = [stored, stored | {"name": "b"} | wrong]
        response = worker.report(execution, "complete", reason="exit", exit_code=0, outputs=files)
        assert response.status_code == 409
        assert response.json()["type"] == "about:blank"
    execution.refresh_from_db()
    assert (execution.state, Output.objects.count()) == ("running", 0)
    assert worker.report(execution, "complete", reason="exit", exit_code=0, outputs=[stored]).status_code == 200


def test_empty_output_is_accepted(worker: RestWorker, execution: Any, bucket: None) -> None:
    worker.report(execution, "start")
    empty = {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    upload = worker.report(execution, "outputs", **empty).json()
    httpx.put(upload["url"], content=b"", headers=upload["headers"]).raise_for_status()
    response = worker.report(execution, "complete", reason="exit", exit_code=0, outputs=[empty | {"name": "empty"}])
    assert response.status_code == 200


FILE = {"name": "f", "size": 1, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("start", {"receipt": []}),
        ("start", {"receipt": {"x": "y" * 70_000}}),
        ("start", {"attempt": 0}),
        ("start", {"worker_id": "x"}),
        ("logs", {}),
        ("logs", {"chunks": [chunk(0, b"x"), chunk(0, b"y")]}),
        ("logs", {"chunks": [chunk(-1, b"x")]}),
        ("logs", {"chunks": [chunk(2**31, b"x")]}),
        ("logs", {"chunks": [chunk(n, b"") for n in range(1001)]}),
        ("logs", {"chunks": [chunk(0, b"x" * (1024 * 1024 + 1))]}),
        ("logs", {"chunks": [chunk(0, b"", base64="*")]}),
        ("logs", {"chunks": [chunk(0, b"", base64="é")]}),
        ("logs", {"chunks": [chunk(0, b"", stream="stdin")]}),
        ("logs", {"chunks": [chunk(0, b"", at="0001-01-01T00:00:00+14:00")]}),
        ("logs", {"chunks": [chunk(0, b"", at="yesterday")]}),
        ("logs", {"chunks": [], "progress": {}}),
        ("logs", {"chunks": [], "progress": {"percent": 101, "message": ""}}),
        ("logs", {"chunks": [], "progress": {"percent": -1, "message": ""}}),
        ("logs", {"chunks": [], "progress": {"percent": "5", "message": ""}}),
        ("logs", {"chunks": [], "progress": {"percent": 5, "message": "x" * 201}}),
        ("logs", {"chunks": [], "progress": {"percent": 5, "message": "\0"}}),
        ("outputs", {"size": -1, "sha256": SHA256}),
        ("outputs", {"size": 1024**3 + 1, "sha256": SHA256}),
        ("outputs", {"size": 1, "sha256": SHA256.upper()}),
        ("complete", {}),
        ("complete", {"reason": "lost"}),
        ("complete", {"reason": "exit", "exit_code": 2**31}),
        ("complete", {"reason": "exit", "result": "\0"}),
        ("complete", {"reason": "exit", "result": json.loads("[" * 100 + "]" * 100)}),
        ("complete", {"reason": "exit", "result": "x" * 600_000}),
        ("complete", {"reason": "exit", "error": "\0"}),
        ("complete", {"reason": "exit", "cpu_seconds": -1}),
        ("complete", {"reason": "exit", "outputs": [FILE, FILE]}),
        ("complete", {"reason": "exit", "outputs": [FILE | {"name": "../f"}]}),
        ("complete", {"reason": "exit", "outputs": [FILE | {"name": "/f"}]}),
        ("complete", {"reason": "exit", "outputs": [FILE | {"name": "a\nb"}]}),
        ("complete", {"reason": "exit", "outputs": [FILE | {"name": f"{n}", "size": 1024**3} for n in range(2)]}),
        ("complete", {"reason": "exit", "status": "succeeded"}),
    ],
)
def test_malformed_report_is_rejected_and_changes_nothing(
    worker: RestWorker, execution: Any, verb: str, body: dict[str, Any]
) -> None:
    response = worker.report(execution, verb, **body)
    assert response.status_code == 400, response.content
    assert response["Content-Type"] == "application/problem+json"
    execution.refresh_from_db()
    assert (execution.state, LogChunk.objects.exists()) == ("claimed", False)


def test_huge_body_is_not_read(worker: RestWorker, execution: Any) -> None:
    chunks = [chunk(n, b"x" * 1_000_000) for n in range(7)]
    assert worker.report(execution, "logs", chunks=chunks).status_code == 413


def test_long_error_is_truncated(worker: RestWorker, execution: Any) -> None:
    ended = worker.report(execution, "complete", reason="sandbox_error", error="é" * 20_000)
    assert ended.status_code == 200
    assert len(execution.attempts.get().error) == 4000


def test_released_run_uses_up_no_try(worker: RestWorker, execution: Any) -> None:
    assert worker.report(execution, "complete", reason="released").json()["status"] == "ready"
    execution.refresh_from_db()
    assert execution.tries_used == 0


def test_log_bytes_are_unchanged(worker: RestWorker, execution: Any, client: APIClient) -> None:
    everything = bytes(range(256))
    worker.report(execution, "logs", chunks=[chunk(0, everything)])
    assert bytes(LogChunk.objects.get().data) == everything
