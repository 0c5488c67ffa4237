"""Faults of the object store: runs wait, wrong bytes never run, partial outputs are never listed.

Postgres, sandbox and store are real, with a proxy in front of the store that fails on command.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from jobs.access.tokens import generate_secret, store_token
from jobs.definitions import lifecycle
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Registration, WorkerOffer
from jobs.logs.store import read_chunks
from jobs.models import Artifact, Attempt, Execution, Output, TokenScope
from jobs.storage import s3
from jobs.storage.artifact_deletion import delete_artifact
from jobs.storage.artifacts import announce_artifact, complete_artifact
from tests.support.factories import hold_of, make_execution, make_job, make_user, make_worker, place_on
from tests.support.s3_proxy import FETCHING, STORING, Fault, Requests, S3Proxy
from tests.support.submitting import store_script
from tests.support.waiting import wait_for
from workers.control_plane.base import ControlPlane
from workers.control_plane.direct import DirectControlPlane
from workers.control_plane.http import RestTransport
from workers.control_plane.rest import RestControlPlane
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
from workers.lease.held_runs import HeldRuns
from workers.run import transfers
from workers.run.artifact_cache import ArtifactCache
from workers.run.log_stream import LogFlusher
from workers.run.run import RunContext, run_attempt
from workers.sandbox.host import detect_host
from workers.sandbox.runtimes import Interpreter, find_runtimes
from workers.sandbox.sandbox import Sandbox

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bucket")]

LEAVES_A_FILE = "echo ran; echo left > out/file"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox(detect_host())
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def interpreters(sandbox: Sandbox) -> dict[str, Interpreter]:
    return dict(find_runtimes(sandbox))


@pytest.fixture
def proxy(settings: Settings) -> Iterator[S3Proxy]:
    """Route all requests of this process to the store through a proxy."""
    with S3Proxy(str(settings.PUNCTUAL_S3_ENDPOINT_URL)) as proxy:
        settings.PUNCTUAL_S3_ENDPOINT_URL = proxy.url
        _forget_clients()
        yield proxy
        _forget_clients()


def _forget_clients() -> None:
    s3._client.cache_clear()
    s3._signing_client.cache_clear()


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "FIRST_PAUSE_SECONDS", 0.02)


class Bench:
    """The parts of a worker, and executions for it."""

    def __init__(self, context: RunContext, take: Callable[[Execution], AttemptFence]) -> None:
        self.context = context
        self.take = take

    def prepare(self, script: str, *, owner: User | None = None) -> AttemptFence:
        owner = owner or make_user()
        artifact = store_script(owner=owner, script=f"{script} # {secrets.token_hex(8)}\n")
        return self.take(make_execution(job=make_job(owner=owner, artifact=artifact)))

    def run(self, fence: AttemptFence) -> Execution:
        run_attempt(self.context, fence)
        return Execution.objects.get(id=fence.execution_id)

    def begin(self, fence: AttemptFence) -> threading.Thread:
        def run() -> None:
            try:
                run_attempt(self.context, fence)
            finally:
                connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


@pytest.fixture(params=["direct", "rest"])
def bench(
    request: pytest.FixtureRequest,
    proxy: S3Proxy,
    sandbox: Sandbox,
    interpreters: dict[str, Interpreter],
    tmp_path: Path,
) -> Iterator[Bench]:
    def equip(plane: ControlPlane, registration: Registration) -> RunContext:
        held = HeldRuns(registration)
        guardian.lease_renewed(boottime())
        cache = ArtifactCache(tmp_path / "cache", 10_000_000)
        return RunContext(plane, sandbox, guardian, interpreters, cache, LogFlusher(), held)

    guardian = Guardian(600.0)
    if request.param == "direct":
        registration = make_worker()
        yield Bench(equip(DirectControlPlane(), registration), lambda execution: place_on(registration, execution))
    else:
        server: LiveServer = request.getfixturevalue("live_server")
        secret = generate_secret()
        store_token(owner=make_user(is_staff=True), name="worker", secret=secret, scope=TokenScope.WORKER)
        transport = RestTransport(server.url, secret)
        plane = RestControlPlane(transport)
        own = plane.register(
            WorkerOffer("remote", UUID(int=1), "default", "h", 9, 9.0, 9000, 9000, ["bash", "inputs"], {})
        )

        def take(execution: Execution) -> AttemptFence:
            place_ready_executions()
            (fence,) = plane.poll_for_work(own, [], wait_seconds=0).fences
            assert fence == hold_of(execution)
            return fence

        yield Bench(equip(plane, own), take)
        transport.close()
    guardian.close()


def ending(execution: Execution) -> tuple[str, str | None, int]:
    return execution.state, execution.reason, execution.tries_used


def tries(execution: Execution) -> list[str | None]:
    return list(Attempt.objects.filter(execution=execution).values_list("reason", flat=True))


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.ERROR_500, Fault.TRUNCATE, Fault.CORRUPT, Fault.SLOW])
def test_badly_transferred_program_is_fetched_again(bench: Bench, proxy: S3Proxy, fault: Fault) -> None:
    fence = bench.prepare("echo ran")
    with proxy.failing(fault, FETCHING, times=2):
        execution = bench.run(fence)
    assert proxy.faults == (1 if fault is Fault.SLOW else 2)
    assert ending(execution) == ("succeeded", "exit", 1)
    assert tries(execution) == ["exit"]


def test_wrong_bytes_from_the_store_are_never_run(bench: Bench, proxy: S3Proxy) -> None:
    """A truncated or altered program might run: its first line is intact."""
    fence = bench.prepare("echo ran")
    with proxy.failing(Fault.CORRUPT, FETCHING):
        execution = bench.run(fence)
    attempt = Attempt.objects.get(execution=execution)
    assert (attempt.reason, attempt.started_at) == (Reason.ARTIFACT_MISMATCH, None)
    assert "they were not run" in attempt.error
    assert execution.state == "failed"
    assert proxy.faults == transfers.MAX_MISMATCHES
    assert _log(execution) == b""


def test_missing_program_is_reported(bench: Bench) -> None:
    fence = bench.prepare("echo ran")
    s3.delete_objects([s3.artifact_key(_sha256(fence))])
    execution = bench.run(fence)
    attempt = Attempt.objects.get(execution=execution)
    assert (attempt.reason, attempt.started_at) == (Reason.ARTIFACT_MISMATCH, None)
    assert "holds no bytes" in attempt.error


def test_storage_outage_uses_no_try(bench: Bench, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "FETCH_RETRY_SECONDS", 0.2)
    fence = bench.prepare("echo ran")
    with proxy.failing(Fault.TRUNCATE, FETCHING):
        execution = bench.run(fence)
    assert ending(execution) == ("backing_off", None, 0)
    assert tries(execution) == [Reason.ARTIFACT_UNAVAILABLE]


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.ERROR_503, Fault.CUT_UPLOAD])
def test_outputs_are_stored_after_outage_without_second_run(bench: Bench, proxy: S3Proxy, fault: Fault) -> None:
    fence = bench.prepare(LEAVES_A_FILE)
    with proxy.failing(fault, STORING, times=3):
        execution = bench.run(fence)
    assert proxy.faults == 3
    assert ending(execution) == ("succeeded", "exit", 1)
    assert (tries(execution), _log(execution)) == (["exit"], b"ran\n")
    output = Output.objects.get()
    assert (output.name, output.size) == ("file", 5)
    assert s3.list_stored_outputs(execution.id, 1) == {(hashlib.sha256(b"left\n").hexdigest(), 5)}


def test_failed_upload_lists_no_outputs(bench: Bench, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STORE_RETRY_SECONDS", 0.2)
    fence = bench.prepare(LEAVES_A_FILE)
    with proxy.failing(Fault.CUT_UPLOAD, STORING):
        execution = bench.run(fence)
    attempt = Attempt.objects.get(execution=execution)
    assert (execution.state, attempt.reason) == ("failed", Reason.ARTIFACT_UNAVAILABLE)
    assert "outputs could not be stored" in attempt.error
    assert not Output.objects.exists()
    assert s3.list_stored_outputs(execution.id, 1) == set()


@pytest.mark.parametrize(("requests", "script"), [(FETCHING, "echo ran"), (STORING, LEAVES_A_FILE)])
def test_run_waiting_for_the_store_can_be_cancelled(
    bench: Bench, proxy: S3Proxy, requests: Requests, script: str
) -> None:
    fence = bench.prepare(script)
    with proxy.failing(Fault.REFUSE, requests):
        thread = bench.begin(fence)
        wait_for(lambda: proxy.faults > 1, "the run waits for the store")
        lifecycle.cancel_execution(fence.execution_id, by="somebody")
        bench.context.held.stop(fence.execution_id, fence.attempt, Reason.CANCELLED)
        thread.join(20)
    assert not thread.is_alive()
    execution = Execution.objects.get(id=fence.execution_id)
    assert ending(execution)[:2] == ("cancelled", "cancelled")
    assert not Output.objects.exists()


@pytest.mark.parametrize(
    ("requests", "script"),
    [(FETCHING, f"echo ran # {'x' * 2000}"), (STORING, "head -c 16000000 /dev/zero > out/file")],
)
def test_slow_transfer_is_aborted_by_cancel(bench: Bench, proxy: S3Proxy, requests: Requests, script: str) -> None:
    fence = bench.prepare(script)
    with proxy.failing(Fault.DRIP, requests):
        thread = bench.begin(fence)
        wait_for(lambda: proxy.faults > 0, "the transfer has begun")
        lifecycle.cancel_execution(fence.execution_id, by="somebody")
        bench.context.held.stop(fence.execution_id, fence.attempt, Reason.CANCELLED)
        thread.join(10)
        assert not thread.is_alive()
    assert ending(Execution.objects.get(id=fence.execution_id))[:2] == ("cancelled", "cancelled")


def test_run_waiting_to_store_outputs_is_released_by_drain(bench: Bench, proxy: S3Proxy) -> None:
    fence = bench.prepare(LEAVES_A_FILE)
    with proxy.failing(Fault.REFUSE, STORING):
        thread = bench.begin(fence)
        wait_for(lambda: proxy.faults > 1, "the run waits for the store")
        bench.context.held.close()
        bench.context.held.stop_all(Reason.RELEASED)
        assert bench.context.held.wait_until_empty(20)
        thread.join(20)
    execution = Execution.objects.get(id=fence.execution_id)
    assert (execution.state, execution.tries_used) == ("ready", 0)


def test_cached_artifact_is_not_fetched(bench: Bench, proxy: S3Proxy) -> None:
    owner = make_user()
    artifact = store_script(owner=owner, script=f"echo {secrets.token_hex(8)}")
    job = make_job(owner=owner, artifact=artifact, max_concurrency=None)
    for expected in (1, 0):
        fence = bench.take(make_execution(job=job))
        before = proxy.calls()
        assert bench.run(fence).state == "succeeded"
        assert proxy.calls() - before == expected


def test_concurrent_runs_share_one_download(bench: Bench, proxy: S3Proxy) -> None:
    fence = bench.prepare(f"echo {'x' * 300_000}")
    sha256, size = _sha256(fence), s3.read_artifact_size(_sha256(fence))
    assert size is not None
    plane, cache, barrier = bench.context.control_plane, bench.context.cache, threading.Barrier(20)

    def open_together() -> None:
        barrier.wait(10)
        os.close(cache.open(sha256, size, plane.read_artifact))

    with proxy.failing(Fault.SLOW, FETCHING):
        threads = [threading.Thread(target=open_together) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert proxy.calls("GET", "artifacts") == 1


def test_artifact_deleted_by_one_owner_runs_for_another(bench: Bench) -> None:
    data = f"echo ran # {secrets.token_hex(8)}\n".encode()
    mine, theirs = _upload(data), _upload(data)
    delete_artifact(theirs.id)
    execution = bench.run(bench.take(make_execution(job=make_job(owner=mine.owner, artifact=mine))))
    assert ending(execution) == ("succeeded", "exit", 1)
    assert _log(execution) == b"ran\n"


def _upload(data: bytes) -> Artifact:
    announced = announce_artifact(owner=make_user(), sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    assert announced.upload is not None, "a copy of another owner is not enough"
    httpx.put(announced.upload.url, content=data, headers=announced.upload.headers).raise_for_status()
    return complete_artifact(announced.artifact)


def _sha256(fence: AttemptFence) -> str:
    return Execution.objects.get(id=fence.execution_id).version.artifact.sha256


def _log(execution: Execution) -> bytes:
    return b"".join(chunk.data for chunk in read_chunks(execution.id, execution.attempt))
