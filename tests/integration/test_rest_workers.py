"""Worker and server over real HTTP: what one writes, the other reads, from the registration to the goodbye."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pytest_django.live_server_helper import LiveServer

from jobs import storage
from jobs.errors import StaleAttempt, WorkerLeaseLost, WorkerNameTaken
from jobs.messages import Publication, Transport
from jobs.models import Artifact, Execution, LogChunk, Output, TokenScope, VersionInput, VersionSecret, Worker
from jobs.protocol import (
    PROTOCOL_VERSION,
    Chunk,
    ClaimedInput,
    ClaimedSecret,
    Hold,
    Offer,
    Order,
    Progress,
    Registration,
    Report,
    StoredOutput,
)
from jobs.services import commands, secrets, transitions
from jobs.services.placement import place_ready_executions
from jobs.services.tokens import new_secret, store_token
from jobs.states import Reason
from tests.factories import make_execution, make_job, make_user
from workers.errors import ControlPlaneRefused
from workers.rest_control_plane import RestControlPlane
from workers.rest_transport import RestTransport

pytestmark = pytest.mark.django_db(transaction=True)
PROGRAM = b"echo hello"
CAPABILITIES = ["bash", "inputs", "secrets"]
OFFER = Offer(
    "remote", uuid4(), "default", "elsewhere", 2, 2.0, 1024, 1024, CAPABILITIES, {"cgroups": "v2"}, {"gpu": 1}
)


@pytest.fixture
def secret() -> str:
    secret = new_secret()
    store_token(owner=make_user(is_staff=True), name="worker", secret=secret, scope=TokenScope.WORKER)
    return secret


@pytest.fixture
def plane(live_server: LiveServer, secret: str, bucket: None) -> Iterator[RestControlPlane]:
    transport = RestTransport(live_server.url, secret)
    yield RestControlPlane(transport)
    transport.close()


def make_runnable() -> Execution:
    owner = make_user()
    sha256 = hashlib.sha256(PROGRAM).hexdigest()
    storage.put_artifact(sha256, PROGRAM)
    artifact = Artifact.objects.create(owner=owner, sha256=sha256, size=len(PROGRAM))
    job = make_job(owner=owner, artifact=artifact, args=["--day", "ü"], env={"REGION": "eu"}, resources={"gpu": 1})
    assert job.current_version is not None
    for path in ("a/ü", None):
        VersionInput.objects.create(version=job.current_version, path=path, artifact=artifact)
    secrets.create_secret(owner=owner, name="key", value="ünsaid\n")
    for given in ({"env": "KEY"}, {"path": "a/key"}):
        VersionSecret.objects.create(version=job.current_version, name="key", **given)
    return make_execution(job=job)


def take(plane: RestControlPlane, registration: Registration) -> Hold:
    placed = place_ready_executions()
    assert len(placed.publications) == 1
    (hold,) = plane.ask_for_work(registration, [], wait_seconds=0).holds
    return hold


def test_from_the_registration_to_the_goodbye(plane: RestControlPlane) -> None:
    assert plane.read_terms().protocol == PROTOCOL_VERSION
    registration = plane.register(OFFER)
    assert registration.incarnation == 1
    execution = make_runnable()
    placed = place_ready_executions()
    assert placed.publications == (
        Publication(execution.id, 1, registration.worker_id, execution.job.name, Transport.REST),
    )
    (hold,) = plane.ask_for_work(registration, [], wait_seconds=0).holds
    assert hold == Hold(execution.id, 1, registration.worker_id, registration.incarnation)
    claimed = plane.claim(hold)
    assert (claimed.args, claimed.env) == ('["--day", "\\u00fc"]', '{"REGION": "eu"}')
    assert b"".join(plane.read_artifact(claimed.sha256)) == PROGRAM
    same = claimed.sha256, len(PROGRAM)
    assert claimed.input_files() == [ClaimedInput("a/ü", *same), ClaimedInput(None, *same)]
    given = [ClaimedSecret("key", "ünsaid\n", env="KEY"), ClaimedSecret("key", "ünsaid\n", path="a/key")]
    assert claimed.opened_secrets() == given
    plane.start(hold, {"cgroup": "v2"})
    assert plane.renew(registration, [(hold.execution_id, hold.attempt)]) == []
    plane.log(hold, [Chunk(0, "stdout", datetime.now(UTC), b"\0\xff")], Progress(0.5, "begins"))
    data = b"left behind"
    output = StoredOutput("a/b", len(data), hashlib.sha256(data).hexdigest())
    plane.store_output(hold, output, io.BytesIO(data))
    moved = plane.finish(hold, Report(Reason.EXIT, exit_code=0, result={"n": [1]}, outputs=[output], cpu_seconds=0.1))
    assert moved is not None
    assert (moved.state, moved.job_id) == ("succeeded", execution.job_id)
    execution.refresh_from_db()
    assert (execution.state, execution.result) == ("succeeded", {"n": [1]})
    assert execution.progress is not None
    assert execution.progress["message"] == "begins"
    assert (bytes(LogChunk.objects.get().data), Output.objects.get().name) == (b"\0\xff", "a/b")
    plane.drain(registration)
    assert Worker.objects.get().status == "draining"
    plane.leave(registration)
    assert Worker.objects.get().status == "offline"


def test_a_cancel_reaches_it_as_an_order_and_every_exit_is_then_cancelled(plane: RestControlPlane) -> None:
    registration = plane.register(OFFER)
    execution = make_runnable()
    hold = take(plane, registration)
    plane.start(hold, {})
    commands.cancel_execution(execution.id, by="somebody")
    work = plane.ask_for_work(registration, [(execution.id, 1)], wait_seconds=20)
    assert work.orders == [Order(execution.id, 1, cancelled=True)]
    moved = plane.finish(hold, Report(Reason.EXIT, exit_code=0))
    assert moved is not None
    assert moved.state == "cancelled"


def test_refusals_are_the_same_errors_as_on_the_direct_path(plane: RestControlPlane, live_server: LiveServer) -> None:
    registration = plane.register(OFFER)
    make_runnable()
    hold = take(plane, registration)
    transitions.lose_held({registration.worker_id: None})
    with pytest.raises(StaleAttempt):
        plane.start(hold, {})
    with pytest.raises(StaleAttempt):
        plane.log(hold, [Chunk(0, "stdout", datetime.now(UTC), b"late")])
    with pytest.raises(StaleAttempt):
        plane.store_output(hold, StoredOutput("a", 0, hashlib.sha256(b"").hexdigest()), io.BytesIO())
    with pytest.raises(StaleAttempt):
        plane.finish(hold, Report(Reason.EXIT, exit_code=0))
    plane.register(OFFER)
    for call in (plane.renew, lambda *words: plane.ask_for_work(*words, wait_seconds=0)):
        with pytest.raises(WorkerLeaseLost):
            call(registration, [])
    with pytest.raises(WorkerNameTaken):
        plane.register(Offer(**{name: getattr(OFFER, name) for name in OFFER.__slots__} | {"instance": uuid4()}))
    transport = RestTransport(live_server.url, "wrong")
    with pytest.raises(ControlPlaneRefused):
        RestControlPlane(transport).register(OFFER)
    transport.close()
