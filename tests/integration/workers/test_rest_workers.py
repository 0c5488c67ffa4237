"""Worker and server over real HTTP, from registration to deregistration."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from jobs.access import secrets
from jobs.access.tokens import generate_secret, store_token
from jobs.definitions import lifecycle
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.errors import StaleAttempt, WorkerLeaseLost, WorkerNameTaken
from jobs.domain.messages import Publication, Transport
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import (
    PROTOCOL_VERSION,
    AttemptFence,
    Chunk,
    ClaimedInput,
    ClaimedSecret,
    Progress,
    Registration,
    RunReport,
    StopOrder,
    StoredOutput,
    WorkerOffer,
)
from jobs.execution import transitions
from jobs.models import Artifact, Execution, LogChunk, Output, TokenScope, VersionInput, VersionSecret, Worker
from jobs.storage import s3
from tests.support.factories import make_execution, make_job, make_user
from workers.control_plane.http import RestTransport
from workers.control_plane.rest import RestControlPlane
from workers.errors import WorkerTokenRejected
from workers.lease.agent import LEASE_SAFETY_FRACTION, Agent
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime

pytestmark = pytest.mark.django_db(transaction=True)
PROGRAM = b"echo hello"
CAPABILITIES = ["bash", "inputs", "secrets"]
OFFER = WorkerOffer(
    "remote", uuid4(), "default", "elsewhere", 2, 2.0, 1024, 1024, CAPABILITIES, {"cgroups": "v2"}, {"gpu": 1}
)


@pytest.fixture
def secret() -> str:
    secret = generate_secret()
    store_token(owner=make_user(is_staff=True), name="worker", secret=secret, scope=TokenScope.WORKER)
    return secret


@pytest.fixture
def plane(live_server: LiveServer, secret: str, bucket: None) -> Iterator[RestControlPlane]:
    transport = RestTransport(live_server.url, secret)
    yield RestControlPlane(transport)
    transport.close()


def test_worker_keeps_its_lease_until_it_learns_a_shorter_one(plane: RestControlPlane, settings: Settings) -> None:
    """The server was restarted with a shorter lease than the worker has read at its start."""
    settings.PUNCTUAL_LEASE_SECONDS = 60.0
    terms = plane.read_terms()
    guardian = Guardian(terms.lease_seconds * LEASE_SAFETY_FRACTION)
    agent = Agent(plane, OFFER, lease_seconds=60.0, renew_seconds=20.0, guardian=guardian, on_evicted=lambda: None)
    try:
        settings.PUNCTUAL_LEASE_SECONDS = 6.0
        for _ in range(3):
            agent.renew()
            lease_left = (Worker.objects.get().lease_until - datetime.now(UTC)).total_seconds()
            killed_in = guardian._renewed_at + guardian._limit_seconds - boottime()
            assert killed_in < lease_left, "otherwise its runs would outlive its lease"
        assert plane.lease_seconds == 6.0, "the shorter lease applies from now on"
        assert agent.renew_seconds == 2.0, "it renews often enough"
        Worker.objects.update(lease_until=datetime.now(UTC) + timedelta(seconds=3))
        agent.renew()
        assert (Worker.objects.get().lease_until - datetime.now(UTC)).total_seconds() < 7
    finally:
        guardian.close()


def test_longer_lease_applies_from_the_next_renewal(plane: RestControlPlane, settings: Settings) -> None:
    settings.PUNCTUAL_LEASE_SECONDS = 6.0
    guardian = Guardian(plane.read_terms().lease_seconds * LEASE_SAFETY_FRACTION)
    agent = Agent(plane, OFFER, lease_seconds=6.0, renew_seconds=2.0, guardian=guardian, on_evicted=lambda: None)
    try:
        settings.PUNCTUAL_LEASE_SECONDS = 60.0
        agent.renew()
        lease_left = (Worker.objects.get().lease_until - datetime.now(UTC)).total_seconds()
        killed_in = guardian._renewed_at + guardian._limit_seconds - boottime()
        assert 45 < killed_in < lease_left
    finally:
        guardian.close()


def make_runnable() -> Execution:
    owner = make_user()
    sha256 = hashlib.sha256(PROGRAM).hexdigest()
    s3.put_artifact(sha256, PROGRAM)
    artifact = Artifact.objects.create(owner=owner, sha256=sha256, size=len(PROGRAM))
    job = make_job(owner=owner, artifact=artifact, args=["--day", "ü"], env={"REGION": "eu"}, resources={"gpu": 1})
    assert job.current_version is not None
    for path in ("a/ü", None):
        VersionInput.objects.create(version=job.current_version, path=path, artifact=artifact)
    secrets.create_secret(owner=owner, name="key", value="ünsaid\n")
    for given in ({"env": "KEY"}, {"path": "a/key"}):
        VersionSecret.objects.create(version=job.current_version, name="key", **given)
    return make_execution(job=job)


def take(plane: RestControlPlane, registration: Registration) -> AttemptFence:
    placed = place_ready_executions()
    assert len(placed.publications) == 1
    (fence,) = plane.poll_for_work(registration, [], wait_seconds=0).fences
    return fence


def test_rest_worker_runs_from_registration_to_deregistration(plane: RestControlPlane) -> None:
    assert plane.read_terms().protocol == PROTOCOL_VERSION
    registration = plane.register(OFFER)
    assert registration.incarnation == 1
    execution = make_runnable()
    placed = place_ready_executions()
    assert placed.publications == (
        Publication(execution.id, 1, registration.worker_id, execution.job.name, Transport.REST),
    )
    (fence,) = plane.poll_for_work(registration, [], wait_seconds=0).fences
    assert fence == AttemptFence(execution.id, 1, registration.worker_id, registration.incarnation)
    claimed = plane.claim(fence)
    assert (claimed.args, claimed.env) == ('["--day", "\\u00fc"]', '{"REGION": "eu"}')
    assert b"".join(plane.read_artifact(claimed.sha256)) == PROGRAM
    same = claimed.sha256, len(PROGRAM)
    assert claimed.input_files() == [ClaimedInput("a/ü", *same), ClaimedInput(None, *same)]
    given = [ClaimedSecret("key", "ünsaid\n", env="KEY"), ClaimedSecret("key", "ünsaid\n", path="a/key")]
    assert claimed.opened_secrets() == given
    plane.start(fence, {"cgroup": "v2"})
    assert plane.renew(registration, [(fence.execution_id, fence.attempt)]) == []
    plane.log(fence, [Chunk(0, "stdout", datetime.now(UTC), b"\0\xff")], Progress(0.5, "begins"))
    data = b"left behind"
    output = StoredOutput("a/b", len(data), hashlib.sha256(data).hexdigest())
    plane.store_output(fence, output, io.BytesIO(data))
    moved = plane.finish(
        fence, RunReport(Reason.EXIT, exit_code=0, result={"n": [1]}, outputs=[output], cpu_seconds=0.1)
    )
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


def test_cancel_is_delivered_as_stop_order(plane: RestControlPlane) -> None:
    registration = plane.register(OFFER)
    execution = make_runnable()
    fence = take(plane, registration)
    plane.start(fence, {})
    lifecycle.cancel_execution(execution.id, by="somebody")
    work = plane.poll_for_work(registration, [(execution.id, 1)], wait_seconds=20)
    assert work.orders == [StopOrder(execution.id, 1, cancelled=True)]
    moved = plane.finish(fence, RunReport(Reason.EXIT, exit_code=0))
    assert moved is not None
    assert moved.state == "cancelled"


def test_rest_and_direct_raise_the_same_errors(plane: RestControlPlane, live_server: LiveServer) -> None:
    registration = plane.register(OFFER)
    make_runnable()
    fence = take(plane, registration)
    transitions.lose_executions({registration.worker_id: None})
    with pytest.raises(StaleAttempt):
        plane.start(fence, {})
    with pytest.raises(StaleAttempt):
        plane.log(fence, [Chunk(0, "stdout", datetime.now(UTC), b"late")])
    with pytest.raises(StaleAttempt):
        plane.store_output(fence, StoredOutput("a", 0, hashlib.sha256(b"").hexdigest()), io.BytesIO())
    with pytest.raises(StaleAttempt):
        plane.finish(fence, RunReport(Reason.EXIT, exit_code=0))
    plane.register(OFFER)
    for call in (plane.renew, lambda *words: plane.poll_for_work(*words, wait_seconds=0)):
        with pytest.raises(WorkerLeaseLost):
            call(registration, [])
    with pytest.raises(WorkerNameTaken):
        plane.register(WorkerOffer(**{name: getattr(OFFER, name) for name in OFFER.__slots__} | {"instance": uuid4()}))
    transport = RestTransport(live_server.url, "wrong")
    with pytest.raises(WorkerTokenRejected):
        RestControlPlane(transport).register(OFFER)
    transport.close()
