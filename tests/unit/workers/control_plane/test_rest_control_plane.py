"""REST control plane client against a recording HTTP server: requests, errors and retries."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from jobs.domain.errors import (
    ArtifactNotUploaded,
    PunctualError,
    StaleAttempt,
    StorageUnavailable,
    WorkerLeaseLost,
    WorkerNameTaken,
)
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import (
    MAX_CHUNKS_PER_APPEND,
    AttemptFence,
    Chunk,
    ClaimedInput,
    Progress,
    Registration,
    RunReport,
    StopOrder,
    StoredOutput,
    WorkerUsage,
)
from tests.support.control_plane import OFFER
from tests.unit.punctual_cli.server import RecordingServer
from workers.control_plane.http import RestTransport
from workers.control_plane.rest import RestControlPlane
from workers.errors import ControlPlaneUnavailable, RequestRejected, WorkerTokenRejected
from workers.lease.held_runs import HeldRuns
from workers.remote import claimer as claimer_module
from workers.remote.claimer import Claimer

API = "/api/v1"
REGISTRATION = Registration(uuid4(), 3)
FENCE = AttemptFence(uuid4(), 2, REGISTRATION.worker_id, REGISTRATION.incarnation)
WORKER = f"{API}/workers/{REGISTRATION.worker_id}"
EXECUTION = f"{API}/executions/{FENCE.execution_id}"
FENCE_FIELDS = {"worker_id": str(FENCE.worker_id), "incarnation": 3, "attempt": 2}
DATA = b"\0\xff"


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    running = RecordingServer()
    yield running
    running.close()


@pytest.fixture
def refusals() -> list[str]:
    return []


@pytest.fixture
def plane(server: RecordingServer, refusals: list[str]) -> Iterator[RestControlPlane]:
    transport = RestTransport(server.url, "the-token", on_refused=refusals.append)
    plane = RestControlPlane(transport)
    plane.lease_seconds = 30.0  # as after a registration
    yield plane
    transport.close()


def body_of(server: RecordingServer) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(server.requests[-1].body)
    return body


def execution(server: RecordingServer, **changes: Any) -> dict[str, Any]:
    return {
        "execution_id": str(FENCE.execution_id),
        "attempt": FENCE.attempt,
        "job_id": str(uuid4()),
        "job_name": "job",
        "run_id": str(uuid4()),
        "scheduled_for": "2030-01-01T00:00:00Z",
        "claimed_at": "2030-01-01T00:00:00Z",
        "runtime": "bash",
        "args": ["a"],
        "env": {"A": "b"},
        "cpu": 1,
        "memory_mb": 1,
        "disk_mb": 1,
        "timeout_seconds": 1.5,
        "network": False,
        "secrets": [],
        "seconds_left": None,
        "program": {"sha256": "0" * 64, "size": 2, "url": f"{server.url}/program"},
        "inputs": [
            {"path": None, "sha256": "2" * 64, "size": 1, "url": f"{server.url}/stdin"},
            {"path": "a/b", "sha256": "3" * 64, "size": 2, "url": f"{server.url}/file"},
        ],
    } | changes


def work(*executions: dict[str, Any], orders: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"executions": list(executions), "orders": list(orders)}


def test_registration_sends_the_whole_offer(server: RecordingServer, plane: RestControlPlane) -> None:
    answer = {"worker_id": str(REGISTRATION.worker_id), "incarnation": 3, "lease_seconds": 15.0}
    server.answer("POST", f"{API}/workers/register", answer, status=201)
    assert plane.register(OFFER) == REGISTRATION
    asked = server.requests[-1]
    assert asked.headers["authorization"] == "Bearer the-token"
    assert set(body_of(server)) == {
        *("name", "instance", "pool", "host", "slots", "cpu", "memory_mb", "disk_mb"),
        *("capabilities", "details", "resources", "refusal"),
    }


def problem(kind: str, detail: str = "the reason") -> dict[str, object]:
    return {"type": kind, "title": "x", "status": 409, "detail": detail, "errors": []}


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (409, problem("urn:punctual:worker-lease-lost"), WorkerLeaseLost),
        (409, problem("urn:punctual:stale-attempt"), StaleAttempt),
        (409, problem("urn:punctual:worker-name-taken"), WorkerNameTaken),
        (404, problem("about:blank"), WorkerLeaseLost),
        (401, problem("about:blank"), WorkerTokenRejected),
        (403, problem("about:blank"), WorkerTokenRejected),
        (500, problem("about:blank"), ControlPlaneUnavailable),
        (503, b"<html>", ControlPlaneUnavailable),
        (429, problem("about:blank"), ControlPlaneUnavailable),
        (302, b"", ControlPlaneUnavailable),
        (200, b"<html>", ControlPlaneUnavailable),
        (200, {"unexpected": 1}, ControlPlaneUnavailable),
        (200, {"orders": [{"execution_id": "x"}]}, ControlPlaneUnavailable),
        (0, b"", ControlPlaneUnavailable),
    ],
)
def test_response_maps_to_its_error(  # noqa: PLR0917 - fixtures
    server: RecordingServer,
    plane: RestControlPlane,
    refusals: list[str],
    status: int,
    answer: object,
    error: type[Exception],
) -> None:
    if status:
        server.answer("POST", f"{WORKER}/heartbeat", answer, status=status)
    else:
        server.hang_up("POST", f"{WORKER}/heartbeat", times=1)
    with pytest.raises(error) as caught:
        plane.renew(REGISTRATION, [])
    assert type(caught.value) is error
    assert refusals == (["the reason"] if error is WorkerTokenRejected else [])


def test_bad_request_is_not_retried(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{EXECUTION}/start", problem("about:blank", "receipt: too long"), status=400)
    with pytest.raises(PunctualError, match="receipt: too long"):
        plane.start(FENCE, {})
    assert len(server.requests) == 1


def test_renewal_sends_held_attempts_and_returns_orders(server: RecordingServer, plane: RestControlPlane) -> None:
    order = {"execution_id": str(FENCE.execution_id), "attempt": 2, "cancelled": True}
    server.answer("POST", f"{WORKER}/heartbeat", {"orders": [order], "lease_seconds": 20.0})
    usage = WorkerUsage(runs=1, taken=4, load=0.5, memory_available_mb=64)
    assert plane.renew(REGISTRATION, [(FENCE.execution_id, 2)], usage) == [StopOrder(FENCE.execution_id, 2, True)]
    held = [{"execution_id": str(FENCE.execution_id), "attempt": 2}]
    encoded = {"runs": 1, "taken": 4, "load": 0.5, "memory_available_mb": 64}
    assert body_of(server) == {"incarnation": 3, "held": held, "usage": encoded, "lease_seconds": 30.0}
    assert plane.lease_seconds == 20.0, "granted by this renewal, sent with the next one"


def test_rejected_renewal_raises(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{WORKER}/heartbeat", problem("about:blank", "held: too many"), status=400, times=2)
    with pytest.raises(RequestRejected, match="held: too many"):
        plane.renew(REGISTRATION, [])


def test_logs_are_retried_and_keep_their_bytes(server: RecordingServer, plane: RestControlPlane) -> None:
    server.hang_up("POST", f"{EXECUTION}/logs", times=2)
    server.answer("POST", f"{EXECUTION}/logs", b"", status=204)
    plane.log(FENCE, [Chunk(7, "stderr", datetime(2030, 1, 1, tzinfo=UTC), DATA)])
    (chunk,) = body_of(server)["chunks"]
    assert (chunk["sequence"], chunk["stream"], base64.b64decode(chunk["base64"])) == (7, "stderr", DATA)
    assert FENCE_FIELDS.items() <= body_of(server).items()
    assert len(server.requests) == 3


def test_many_log_chunks_are_sent_in_batches(server: RecordingServer, plane: RestControlPlane) -> None:
    """A program that alternates between its streams makes one chunk per line."""
    server.answer("POST", f"{EXECUTION}/logs", b"", status=204)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    streams = ("stdout", "stderr")
    plane.log(FENCE, [Chunk(number, streams[number % 2], at, b"x") for number in range(MAX_CHUNKS_PER_APPEND + 1)])
    assert len(server.requests) == 2
    assert [chunk["sequence"] for chunk in body_of(server)["chunks"]] == [MAX_CHUNKS_PER_APPEND]


@pytest.mark.parametrize("count", [0, 1, MAX_CHUNKS_PER_APPEND + 1])
def test_progress_is_sent_once_with_or_without_log(
    server: RecordingServer, plane: RestControlPlane, count: int
) -> None:
    server.answer("POST", f"{EXECUTION}/logs", b"", status=204)
    plane.log(FENCE, [Chunk(n, "stdout", datetime.now(UTC), b"x") for n in range(count)], Progress(5, "far"))
    bodies = [json.loads(request.body) for request in server.requests]
    assert [body.get("progress") for body in bodies] == [{"percent": 5, "message": "far"}, None][: len(bodies)]
    assert sum(len(body["chunks"]) for body in bodies) == count


def test_stale_retry_of_finish_is_not_an_error(server: RecordingServer, plane: RestControlPlane) -> None:
    server.hang_up("POST", f"{EXECUTION}/complete", times=1)
    server.answer("POST", f"{EXECUTION}/complete", problem("urn:punctual:stale-attempt"), status=409)
    assert plane.finish(FENCE, RunReport(Reason.EXIT, exit_code=0)) is None
    with pytest.raises(StaleAttempt):
        plane.finish(FENCE, RunReport(Reason.EXIT, exit_code=0))


def test_finish_sends_the_whole_report(server: RecordingServer, plane: RestControlPlane) -> None:
    moved = {
        "execution_id": str(FENCE.execution_id),
        "job_id": str(uuid4()),
        "run_id": str(uuid4()),
        "status": "failed",
    }
    server.answer("POST", f"{EXECUTION}/complete", moved)
    output = StoredOutput("a", 1, "0" * 64)
    ended = plane.finish(FENCE, RunReport(Reason.TIMEOUT, error="odd \ud800\0 name", outputs=[output], result=[1]))
    assert ended is not None
    assert ended.state == "failed"
    body = body_of(server)
    assert (body["reason"], body["error"], body["result"]) == ("timeout", "odd ? name", [1])
    assert body["outputs"] == [{"name": "a", "size": 1, "sha256": "0" * 64}]


def test_output_is_uploaded_without_the_token(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{EXECUTION}/outputs", server.upload("/store"), status=201)
    for status in (503, 404, 200):
        server.answer("PUT", "/store", b"", status=status)
    for status in (503, 404):
        with pytest.raises(StorageUnavailable, match=str(status)):
            plane.store_output(FENCE, StoredOutput("a", 2, "0" * 64), io.BytesIO(DATA))
    body = io.BytesIO(DATA)
    body.read()
    plane.store_output(FENCE, StoredOutput("a", 2, "0" * 64), body)
    put = server.requests[-1]
    assert (put.method, put.body, put.headers["x-pinned"]) == ("PUT", DATA, "yes")
    assert "authorization" not in put.headers


def test_attempt_is_delivered_once(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    server.answer("GET", "/program", DATA)
    assert plane.poll_for_work(REGISTRATION, [], wait_seconds=5).fences == [FENCE]
    claimed = plane.claim(FENCE)
    assert (claimed.args, claimed.env, claimed.timeout_seconds) == ('["a"]', '{"A": "b"}', 1.5)
    assert b"".join(plane.read_artifact("0" * 64)) == DATA
    assert "authorization" not in server.requests[-1].headers
    assert claimed.input_files() == [ClaimedInput(None, "2" * 64, 1), ClaimedInput("a/b", "3" * 64, 2)]
    server.answer("GET", "/file", DATA)
    assert b"".join(plane.read_artifact("3" * 64)) == DATA
    # Neither a second claim nor a repeated delivery runs the attempt twice.
    with pytest.raises(StaleAttempt):
        plane.claim(FENCE)
    assert plane.poll_for_work(REGISTRATION, [], wait_seconds=5).fences == []


@pytest.mark.parametrize(("status", "error"), [(404, ArtifactNotUploaded), (403, StorageUnavailable)])
def test_unavailable_program_raises(
    server: RecordingServer, plane: RestControlPlane, status: int, error: type[Exception], refusals: list[str]
) -> None:
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    server.answer("GET", "/program", b"", status=status)
    plane.poll_for_work(REGISTRATION, [], wait_seconds=5)
    with pytest.raises(error):
        b"".join(plane.read_artifact("0" * 64))
    assert refusals == []
    with pytest.raises(StorageUnavailable):
        plane.read_artifact("1" * 64)


def test_unclaimed_attempt_is_released(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    server.answer("POST", f"{EXECUTION}/complete", problem("urn:punctual:stale-attempt"), status=409)
    plane.poll_for_work(REGISTRATION, [], wait_seconds=5)
    plane.release_unclaimed(0)
    assert body_of(server)["reason"] == "released"
    plane.release_unclaimed(0)
    assert len(server.requests) == 2


@pytest.fixture
def claimer(plane: RestControlPlane) -> Callable[[Callable[[AttemptFence], None]], Claimer]:
    held = HeldRuns(REGISTRATION)
    return lambda run: Claimer(plane, held, run, wait_seconds=5)


def test_poll_starts_runs_and_applies_orders(
    server: RecordingServer, plane: RestControlPlane, claimer: Callable[..., Claimer]
) -> None:
    stop = {"execution_id": str(FENCE.execution_id), "attempt": 2, "cancelled": True}
    server.answer("POST", f"{WORKER}/claim", work(execution(server), orders=(stop,)))
    taken: list[AttemptFence] = []

    def run(fence: AttemptFence) -> None:
        plane.claim(fence)
        taken.append(fence)

    polling = claimer(run)
    with polling._held.holding(FENCE) as mine:
        polling.poll()
        assert mine.stop_reason is Reason.CANCELLED
    assert taken == [FENCE]
    assert body_of(server)["held"] == [{"execution_id": str(FENCE.execution_id), "attempt": 2}]


def test_claimer_survives_errors_until_stopped(
    server: RecordingServer, plane: RestControlPlane, claimer: Callable[..., Claimer]
) -> None:
    server.answer("POST", f"{WORKER}/claim", problem("about:blank"), status=503)
    server.answer("POST", f"{WORKER}/claim", problem("urn:punctual:worker-lease-lost"), status=409)
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    taken: list[AttemptFence] = []

    def run(fence: AttemptFence) -> None:
        plane.claim(fence)
        taken.append(fence)
        polling._stopping.set()

    polling = claimer(run)
    polling.start()
    polling._thread.join(timeout=30)
    assert taken == [FENCE]
    assert not polling._thread.is_alive()


def test_rejected_token_stops_the_claimer(
    server: RecordingServer, claimer: Callable[..., Claimer], refusals: list[str]
) -> None:
    server.answer("POST", f"{WORKER}/claim", problem("about:blank", "The API token is unknown."), status=401)
    polling = claimer(lambda _: None)
    polling.start()
    polling._thread.join(timeout=30)
    assert not polling._thread.is_alive()
    assert refusals == ["The API token is unknown."]
    assert len(server.requests) == 1


def test_claimer_does_not_poll_while_lease_is_expired(
    server: RecordingServer, plane: RestControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer_module, "EMPTY_POLL_PAUSE_SECONDS", 0.01)
    server.answer("POST", f"{WORKER}/claim", problem("about:blank"), status=401)
    asked_before: list[int] = []

    def may_run() -> bool:
        asked_before.append(len(server.requests))
        return len(asked_before) > 3

    polling = Claimer(plane, HeldRuns(REGISTRATION), lambda _: None, wait_seconds=5, may_run=may_run)
    polling.start()
    polling._thread.join(timeout=30)
    assert asked_before == [0, 0, 0, 0]
    assert len(server.requests) == 1
