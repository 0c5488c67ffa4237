"""A worker's words over HTTP, to a real server that answers as it is told: what answers mean, and what is repeated."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from jobs.errors import (
    ArtifactNotUploaded,
    PunctualError,
    StaleAttempt,
    StorageUnavailable,
    WorkerLeaseLost,
    WorkerNameTaken,
)
from jobs.protocol import (
    MAX_CHUNKS_SAID,
    Chunk,
    ClaimedInput,
    Hold,
    Order,
    Progress,
    Registration,
    Report,
    StoredOutput,
    Usage,
)
from jobs.states import Reason
from tests.unit.cli.server import RecordingServer
from tests.unit.workers.control_plane import OFFER
from workers import claimer as claimer_module
from workers.claimer import Claimer
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable
from workers.held_runs import HeldRuns
from workers.rest_control_plane import RestControlPlane
from workers.rest_transport import RestTransport

API = "/api/v1"
REGISTRATION = Registration(uuid4(), 3)
HOLD = Hold(uuid4(), 2, REGISTRATION.worker_id, REGISTRATION.incarnation)
WORKER = f"{API}/workers/{REGISTRATION.worker_id}"
EXECUTION = f"{API}/executions/{HOLD.execution_id}"
FENCE = {"worker_id": str(HOLD.worker_id), "incarnation": 3, "attempt": 2}
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
    yield RestControlPlane(transport)
    transport.close()


def body_of(server: RecordingServer) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(server.requests[-1].body)
    return body


def execution(server: RecordingServer, **changes: Any) -> dict[str, Any]:
    return {
        "execution_id": str(HOLD.execution_id),
        "attempt": HOLD.attempt,
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
        "seconds_left": None,
        "program": {"sha256": "0" * 64, "size": 2, "url": f"{server.url}/program"},
        "inputs": [
            {"path": None, "sha256": "2" * 64, "size": 1, "url": f"{server.url}/stdin"},
            {"path": "a/b", "sha256": "3" * 64, "size": 2, "url": f"{server.url}/file"},
        ],
    } | changes


def work(*executions: dict[str, Any], orders: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"executions": list(executions), "orders": list(orders)}


def test_registering_says_all_of_the_offer(server: RecordingServer, plane: RestControlPlane) -> None:
    answer = {"worker_id": str(REGISTRATION.worker_id), "incarnation": 3}
    server.answer("POST", f"{API}/workers/register", answer, status=201)
    assert plane.register(OFFER) == REGISTRATION
    asked = server.requests[-1]
    assert asked.headers["authorization"] == "Bearer the-token"
    assert set(body_of(server)) == {
        *("name", "instance", "pool", "host", "slots", "cpu", "memory_mb", "disk_mb"),
        *("capabilities", "details", "resources", "refusal"),
    }


def problem(kind: str, detail: str = "said so") -> dict[str, object]:
    return {"type": kind, "title": "x", "status": 409, "detail": detail, "errors": []}


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (409, problem("urn:punctual:worker-lease-lost"), WorkerLeaseLost),
        (409, problem("urn:punctual:stale-attempt"), StaleAttempt),
        (409, problem("urn:punctual:worker-name-taken"), WorkerNameTaken),
        (404, problem("about:blank"), WorkerLeaseLost),
        (401, problem("about:blank"), ControlPlaneRefused),
        (403, problem("about:blank"), ControlPlaneRefused),
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
def test_what_an_answer_means(  # noqa: PLR0917 - fixtures
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
    assert refusals == (["said so"] if error is ControlPlaneRefused else [])


def test_what_is_our_own_mistake_is_not_repeated(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{EXECUTION}/start", problem("about:blank", "receipt: too long"), status=400)
    with pytest.raises(PunctualError, match="receipt: too long"):
        plane.start(HOLD, {})
    assert len(server.requests) == 1


def test_a_renewal_lists_what_is_held_and_brings_orders(server: RecordingServer, plane: RestControlPlane) -> None:
    order = {"execution_id": str(HOLD.execution_id), "attempt": 2, "cancelled": True}
    server.answer("POST", f"{WORKER}/heartbeat", {"orders": [order]})
    usage = Usage(runs=1, taken=4, load=0.5, memory_available_mb=64)
    assert plane.renew(REGISTRATION, [(HOLD.execution_id, 2)], usage) == [Order(HOLD.execution_id, 2, True)]
    held = [{"execution_id": str(HOLD.execution_id), "attempt": 2}]
    said = {"runs": 1, "taken": 4, "load": 0.5, "memory_available_mb": 64}
    assert body_of(server) == {"incarnation": 3, "held": held, "usage": said}


def test_logs_outlast_an_outage_and_are_bytes(server: RecordingServer, plane: RestControlPlane) -> None:
    server.hang_up("POST", f"{EXECUTION}/logs", times=2)
    server.answer("POST", f"{EXECUTION}/logs", b"", status=204)
    plane.log(HOLD, [Chunk(7, "stderr", datetime(2030, 1, 1, tzinfo=UTC), DATA)])
    (chunk,) = body_of(server)["chunks"]
    assert (chunk["sequence"], chunk["stream"], base64.b64decode(chunk["base64"])) == (7, "stderr", DATA)
    assert FENCE.items() <= body_of(server).items()
    assert len(server.requests) == 3


def test_many_small_pieces_of_a_log_are_said_in_turn(server: RecordingServer, plane: RestControlPlane) -> None:
    """A program that writes to both streams by turns makes a piece of every line."""
    server.answer("POST", f"{EXECUTION}/logs", b"", status=204)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    streams = ("stdout", "stderr")
    plane.log(HOLD, [Chunk(number, streams[number % 2], at, b"x") for number in range(MAX_CHUNKS_SAID + 1)])
    assert len(server.requests) == 2
    assert [chunk["sequence"] for chunk in body_of(server)["chunks"]] == [MAX_CHUNKS_SAID]


@pytest.mark.parametrize("count", [0, 1, MAX_CHUNKS_SAID + 1])
def test_progress_is_said_once_with_the_log_or_alone(
    server: RecordingServer, plane: RestControlPlane, count: int
) -> None:
    server.answer("POST", f"{EXECUTION}/logs", b"", status=204)
    plane.log(HOLD, [Chunk(n, "stdout", datetime.now(UTC), b"x") for n in range(count)], Progress(5, "far"))
    bodies = [json.loads(request.body) for request in server.requests]
    assert [body.get("progress") for body in bodies] == [{"percent": 5, "message": "far"}, None][: len(bodies)]
    assert sum(len(body["chunks"]) for body in bodies) == count


def test_an_end_that_was_heard_is_not_an_error(server: RecordingServer, plane: RestControlPlane) -> None:
    server.hang_up("POST", f"{EXECUTION}/complete", times=1)
    server.answer("POST", f"{EXECUTION}/complete", problem("urn:punctual:stale-attempt"), status=409)
    assert plane.finish(HOLD, Report(Reason.EXIT, exit_code=0)) is None
    with pytest.raises(StaleAttempt):
        plane.finish(HOLD, Report(Reason.EXIT, exit_code=0))


def test_an_end_says_all_of_the_report(server: RecordingServer, plane: RestControlPlane) -> None:
    moved = {"execution_id": str(HOLD.execution_id), "job_id": str(uuid4()), "run_id": str(uuid4()), "status": "failed"}
    server.answer("POST", f"{EXECUTION}/complete", moved)
    output = StoredOutput("a", 1, "0" * 64)
    ended = plane.finish(HOLD, Report(Reason.TIMEOUT, error="odd \ud800\0 name", outputs=[output], result=[1]))
    assert ended is not None
    assert ended.state == "failed"
    said = body_of(server)
    assert (said["reason"], said["error"], said["result"]) == ("timeout", "odd ? name", [1])
    assert said["outputs"] == [{"name": "a", "size": 1, "sha256": "0" * 64}]


def test_an_output_is_announced_then_uploaded_without_the_token(
    server: RecordingServer, plane: RestControlPlane
) -> None:
    server.answer("POST", f"{EXECUTION}/outputs", server.upload("/store"), status=201)
    for status in (503, 404, 200):
        server.answer("PUT", "/store", b"", status=status)
    for status in (503, 404):
        with pytest.raises(StorageUnavailable, match=str(status)):
            plane.store_output(HOLD, StoredOutput("a", 2, "0" * 64), io.BytesIO(DATA))
    body = io.BytesIO(DATA)
    body.read()
    plane.store_output(HOLD, StoredOutput("a", 2, "0" * 64), body)
    put = server.requests[-1]
    assert (put.method, put.body, put.headers["x-pinned"]) == ("PUT", DATA, "yes")
    assert "authorization" not in put.headers


def test_work_is_delivered_once(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    server.answer("GET", "/program", DATA)
    assert plane.ask_for_work(REGISTRATION, [], wait_seconds=5).holds == [HOLD]
    claimed = plane.claim(HOLD)
    assert (claimed.args, claimed.env, claimed.timeout_seconds) == ('["a"]', '{"A": "b"}', 1.5)
    assert b"".join(plane.read_artifact("0" * 64)) == DATA
    assert "authorization" not in server.requests[-1].headers
    assert claimed.input_files() == [ClaimedInput(None, "2" * 64, 1), ClaimedInput("a/b", "3" * 64, 2)]
    server.answer("GET", "/file", DATA)
    assert b"".join(plane.read_artifact("3" * 64)) == DATA
    # A message for an attempt that was taken, and one that the server tells again: neither runs it twice.
    with pytest.raises(StaleAttempt):
        plane.claim(HOLD)
    assert plane.ask_for_work(REGISTRATION, [], wait_seconds=5).holds == []


@pytest.mark.parametrize(("status", "error"), [(404, ArtifactNotUploaded), (403, StorageUnavailable)])
def test_a_program_that_cannot_be_had(
    server: RecordingServer, plane: RestControlPlane, status: int, error: type[Exception], refusals: list[str]
) -> None:
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    server.answer("GET", "/program", b"", status=status)
    plane.ask_for_work(REGISTRATION, [], wait_seconds=5)
    with pytest.raises(error):
        b"".join(plane.read_artifact("0" * 64))
    assert refusals == []
    with pytest.raises(StorageUnavailable):
        plane.read_artifact("1" * 64)


def test_what_no_run_takes_is_given_back(server: RecordingServer, plane: RestControlPlane) -> None:
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    server.answer("POST", f"{EXECUTION}/complete", problem("urn:punctual:stale-attempt"), status=409)
    plane.ask_for_work(REGISTRATION, [], wait_seconds=5)
    plane.give_back_untaken(0)
    assert body_of(server)["reason"] == "released"
    plane.give_back_untaken(0)
    assert len(server.requests) == 2


@pytest.fixture
def claimer(plane: RestControlPlane) -> Callable[[Callable[[Hold], None]], Claimer]:
    held = HeldRuns(REGISTRATION)
    return lambda run: Claimer(plane, held, run, wait_seconds=5)


def test_a_question_hands_out_work_and_obeys_orders(
    server: RecordingServer, plane: RestControlPlane, claimer: Callable[..., Claimer]
) -> None:
    stop = {"execution_id": str(HOLD.execution_id), "attempt": 2, "cancelled": True}
    server.answer("POST", f"{WORKER}/claim", work(execution(server), orders=(stop,)))
    taken: list[Hold] = []

    def run(hold: Hold) -> None:
        plane.claim(hold)
        taken.append(hold)

    asking = claimer(run)
    with asking._held.holding(HOLD) as mine:
        asking.ask()
        assert mine.stop_reason is Reason.CANCELLED
    assert taken == [HOLD]
    assert body_of(server)["held"] == [{"execution_id": str(HOLD.execution_id), "attempt": 2}]


def test_the_loop_outlives_errors_and_ends_when_asked(
    server: RecordingServer, plane: RestControlPlane, claimer: Callable[..., Claimer]
) -> None:
    server.answer("POST", f"{WORKER}/claim", problem("about:blank"), status=503)
    server.answer("POST", f"{WORKER}/claim", problem("urn:punctual:worker-lease-lost"), status=409)
    server.answer("POST", f"{WORKER}/claim", work(execution(server)))
    taken: list[Hold] = []

    def run(hold: Hold) -> None:
        plane.claim(hold)
        taken.append(hold)
        asking._stopping.set()

    asking = claimer(run)
    asking.start()
    asking._thread.join(timeout=30)
    assert taken == [HOLD]
    assert not asking._thread.is_alive()


def test_a_refused_token_ends_the_loop(
    server: RecordingServer, claimer: Callable[..., Claimer], refusals: list[str]
) -> None:
    server.answer("POST", f"{WORKER}/claim", problem("about:blank", "The API token is unknown."), status=401)
    asking = claimer(lambda _: None)
    asking.start()
    asking._thread.join(timeout=30)
    assert not asking._thread.is_alive()
    assert refusals == ["The API token is unknown."]
    assert len(server.requests) == 1


def test_while_nothing_may_run_nothing_is_asked_for(
    server: RecordingServer, plane: RestControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer_module, "PAUSE_SECONDS", 0.01)
    server.answer("POST", f"{WORKER}/claim", problem("about:blank"), status=401)
    asked_before: list[int] = []

    def may_run() -> bool:
        asked_before.append(len(server.requests))
        return len(asked_before) > 3

    asking = Claimer(plane, HeldRuns(REGISTRATION), lambda _: None, wait_seconds=5, may_run=may_run)
    asking.start()
    asking._thread.join(timeout=30)
    assert asked_before == [0, 0, 0, 0]
    assert len(server.requests) == 1
