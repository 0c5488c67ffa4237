"""A store that is slow, away, cuts or changes bytes: runs wait, wrong bytes never run, half a file is never listed.

Real runs: Postgres, sandbox and store are real, with a proxy that fails on command before the store.
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

from jobs import storage
from jobs.models import Artifact, Attempt, Execution, Output, TokenScope
from jobs.protocol import Hold, Offer, Registration
from jobs.services import commands
from jobs.services.artifact_deletion import delete_artifact
from jobs.services.artifacts import announce_artifact, complete_artifact, store_script
from jobs.services.logs import read_chunks
from jobs.services.placement import place_ready_executions
from jobs.services.tokens import new_secret, store_token
from jobs.states import Reason
from tests.factories import hold_of, make_execution, make_job, make_user, make_worker, place_on
from tests.s3_proxy import FETCHING, STORING, Fault, Requests, S3Proxy
from tests.waiting import wait_for
from workers import transfers
from workers.artifact_cache import ArtifactCache
from workers.control_plane import ControlPlane
from workers.direct_control_plane import DirectControlPlane
from workers.guardian import Guardian
from workers.guardian_process import now
from workers.held_runs import HeldRuns
from workers.log_stream import LogFlusher
from workers.rest_control_plane import RestControlPlane
from workers.rest_transport import RestTransport
from workers.run import Equipment, run_attempt
from workers.sandbox import Interpreter, Sandbox, detect_host, find_runtimes

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
    """Everything that is asked of the store in this process goes through it."""
    with S3Proxy(str(settings.PUNCTUAL_S3_ENDPOINT_URL)) as proxy:
        settings.PUNCTUAL_S3_ENDPOINT_URL = proxy.url
        _forget_clients()
        yield proxy
        _forget_clients()


def _forget_clients() -> None:
    storage._client.cache_clear()
    storage._signer.cache_clear()


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "AGAIN_SECONDS", 0.02)


class Bench:
    """A worker's machinery, and executions for it."""

    def __init__(self, equipment: Equipment, take: Callable[[Execution], Hold]) -> None:
        self.equipment = equipment
        self.take = take

    def prepare(self, script: str, *, owner: User | None = None) -> Hold:
        owner = owner or make_user()
        artifact = store_script(owner=owner, script=f"{script} # {secrets.token_hex(8)}\n")
        return self.take(make_execution(job=make_job(owner=owner, artifact=artifact)))

    def run(self, hold: Hold) -> Execution:
        run_attempt(self.equipment, hold)
        return Execution.objects.get(id=hold.execution_id)

    def begin(self, hold: Hold) -> threading.Thread:
        def run() -> None:
            try:
                run_attempt(self.equipment, hold)
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
    def equip(plane: ControlPlane, registration: Registration) -> Equipment:
        held = HeldRuns(registration)
        guardian.trust(now())
        cache = ArtifactCache(tmp_path / "cache", 10_000_000)
        return Equipment(plane, sandbox, guardian, interpreters, cache, LogFlusher(), held)

    guardian = Guardian(600.0)
    if request.param == "direct":
        registration = make_worker()
        yield Bench(equip(DirectControlPlane(), registration), lambda execution: place_on(registration, execution))
    else:
        server: LiveServer = request.getfixturevalue("live_server")
        secret = new_secret()
        store_token(owner=make_user(is_staff=True), name="worker", secret=secret, scope=TokenScope.WORKER)
        transport = RestTransport(server.url, secret)
        plane = RestControlPlane(transport)
        own = plane.register(Offer("remote", UUID(int=1), "default", "h", 9, 9.0, 9000, 9000, ["bash", "inputs"], {}))

        def take(execution: Execution) -> Hold:
            place_ready_executions()
            (hold,) = plane.ask_for_work(own, [], wait_seconds=0).holds
            assert hold == hold_of(execution)
            return hold

        yield Bench(equip(plane, own), take)
        transport.close()
    guardian.close()


def ending(execution: Execution) -> tuple[str, str | None, int]:
    return execution.state, execution.reason, execution.tries_used


def tries(execution: Execution) -> list[str | None]:
    return list(Attempt.objects.filter(execution=execution).values_list("reason", flat=True))


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.ERROR_500, Fault.TRUNCATE, Fault.CORRUPT, Fault.SLOW])
def test_a_program_that_comes_badly_is_fetched_again(bench: Bench, proxy: S3Proxy, fault: Fault) -> None:
    hold = bench.prepare("echo ran")
    with proxy.failing(fault, FETCHING, times=2):
        execution = bench.run(hold)
    assert proxy.suffered == (1 if fault is Fault.SLOW else 2)
    assert ending(execution) == ("succeeded", "exit", 1)
    assert tries(execution) == ["exit"]


def test_a_store_that_never_gives_the_right_bytes_runs_nothing(bench: Bench, proxy: S3Proxy) -> None:
    """Half of a program, or a program with a byte changed, may well run: its first line would have."""
    hold = bench.prepare("echo ran")
    with proxy.failing(Fault.CORRUPT, FETCHING):
        execution = bench.run(hold)
    attempt = Attempt.objects.get(execution=execution)
    assert (attempt.reason, attempt.started_at) == (Reason.ARTIFACT_MISMATCH, None)
    assert "nothing of it was run" in attempt.error
    assert execution.state == "failed"
    assert proxy.suffered == transfers.MISMATCHES
    assert _log(execution) == b""


def test_a_program_whose_bytes_are_gone_is_said_so(bench: Bench) -> None:
    hold = bench.prepare("echo ran")
    storage.delete_objects([storage.artifact_key(_sha256(hold))])
    execution = bench.run(hold)
    attempt = Attempt.objects.get(execution=execution)
    assert (attempt.reason, attempt.started_at) == (Reason.ARTIFACT_MISMATCH, None)
    assert "holds no bytes" in attempt.error


def test_a_store_that_stays_away_uses_up_no_try(bench: Bench, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "FETCH_FOR_SECONDS", 0.2)
    hold = bench.prepare("echo ran")
    with proxy.failing(Fault.TRUNCATE, FETCHING):
        execution = bench.run(hold)
    assert ending(execution) == ("backing_off", None, 0)
    assert tries(execution) == [Reason.ARTIFACT_UNAVAILABLE]


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.ERROR_503, Fault.CUT_UPLOAD])
def test_outputs_that_cannot_be_stored_at_once_are_stored_later_and_the_program_runs_once(
    bench: Bench, proxy: S3Proxy, fault: Fault
) -> None:
    hold = bench.prepare(LEAVES_A_FILE)
    with proxy.failing(fault, STORING, times=3):
        execution = bench.run(hold)
    assert proxy.suffered == 3
    assert ending(execution) == ("succeeded", "exit", 1)
    assert (tries(execution), _log(execution)) == (["exit"], b"ran\n")
    output = Output.objects.get()
    assert (output.name, output.size) == ("file", 5)
    assert storage.stored_outputs(execution.id, 1) == {(hashlib.sha256(b"left\n").hexdigest(), 5)}


def test_of_an_upload_that_is_cut_for_good_nothing_is_listed(
    bench: Bench, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "STORE_FOR_SECONDS", 0.2)
    hold = bench.prepare(LEAVES_A_FILE)
    with proxy.failing(Fault.CUT_UPLOAD, STORING):
        execution = bench.run(hold)
    attempt = Attempt.objects.get(execution=execution)
    assert (execution.state, attempt.reason) == ("failed", Reason.ARTIFACT_UNAVAILABLE)
    assert "outputs could not be stored" in attempt.error
    assert not Output.objects.exists()
    assert storage.stored_outputs(execution.id, 1) == set()


@pytest.mark.parametrize(("requests", "script"), [(FETCHING, "echo ran"), (STORING, LEAVES_A_FILE)])
def test_a_run_that_waits_for_the_store_is_cancelled(
    bench: Bench, proxy: S3Proxy, requests: Requests, script: str
) -> None:
    hold = bench.prepare(script)
    with proxy.failing(Fault.REFUSE, requests):
        thread = bench.begin(hold)
        wait_for(lambda: proxy.suffered > 1, "it waits for the store")
        commands.cancel_execution(hold.execution_id, by="somebody")
        bench.equipment.held.stop(hold.execution_id, hold.attempt, Reason.CANCELLED)
        thread.join(20)
    assert not thread.is_alive()
    execution = Execution.objects.get(id=hold.execution_id)
    assert ending(execution)[:2] == ("cancelled", "cancelled")
    assert not Output.objects.exists()


@pytest.mark.parametrize(
    ("requests", "script"),
    [(FETCHING, f"echo ran # {'x' * 2000}"), (STORING, "head -c 16000000 /dev/zero > out/file")],
)
def test_a_transfer_that_drips_is_left_when_the_run_is_cancelled(
    bench: Bench, proxy: S3Proxy, requests: Requests, script: str
) -> None:
    hold = bench.prepare(script)
    with proxy.failing(Fault.DRIP, requests):
        thread = bench.begin(hold)
        wait_for(lambda: proxy.suffered > 0, "it has begun")
        commands.cancel_execution(hold.execution_id, by="somebody")
        bench.equipment.held.stop(hold.execution_id, hold.attempt, Reason.CANCELLED)
        thread.join(10)
        assert not thread.is_alive()
    assert ending(Execution.objects.get(id=hold.execution_id))[:2] == ("cancelled", "cancelled")


def test_a_run_that_waits_to_store_its_outputs_is_released_by_a_drain(bench: Bench, proxy: S3Proxy) -> None:
    hold = bench.prepare(LEAVES_A_FILE)
    with proxy.failing(Fault.REFUSE, STORING):
        thread = bench.begin(hold)
        wait_for(lambda: proxy.suffered > 1, "it waits for the store")
        bench.equipment.held.close()
        bench.equipment.held.stop_all(Reason.RELEASED)
        assert bench.equipment.held.wait_until_empty(20)
        thread.join(20)
    execution = Execution.objects.get(id=hold.execution_id)
    assert (execution.state, execution.tries_used) == ("ready", 0)


def test_what_is_cached_asks_the_store_for_nothing(bench: Bench, proxy: S3Proxy) -> None:
    owner = make_user()
    artifact = store_script(owner=owner, script=f"echo {secrets.token_hex(8)}")
    job = make_job(owner=owner, artifact=artifact, max_concurrency=None)
    for expected in (1, 0):
        hold = bench.take(make_execution(job=job))
        before = proxy.calls()
        assert bench.run(hold).state == "succeeded"
        assert proxy.calls() - before == expected


def test_many_that_start_at_once_share_one_download(bench: Bench, proxy: S3Proxy) -> None:
    hold = bench.prepare(f"echo {'x' * 300_000}")
    sha256, size = _sha256(hold), storage.artifact_size(_sha256(hold))
    assert size is not None
    plane, cache, barrier = bench.equipment.control_plane, bench.equipment.cache, threading.Barrier(20)

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


def test_what_another_owner_deleted_runs_for_who_keeps_it(bench: Bench) -> None:
    data = f"echo ran # {secrets.token_hex(8)}\n".encode()
    mine, theirs = _upload(data), _upload(data)
    delete_artifact(theirs.id)
    execution = bench.run(bench.take(make_execution(job=make_job(owner=mine.owner, artifact=mine))))
    assert ending(execution) == ("succeeded", "exit", 1)
    assert _log(execution) == b"ran\n"


def _upload(data: bytes) -> Artifact:
    announced = announce_artifact(owner=make_user(), sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    assert announced.upload is not None, "that others stored it is no proof"
    httpx.put(announced.upload.url, content=data, headers=announced.upload.headers).raise_for_status()
    return complete_artifact(announced.artifact)


def _sha256(hold: Hold) -> str:
    return Execution.objects.get(id=hold.execution_id).version.artifact.sha256


def _log(execution: Execution) -> bytes:
    return b"".join(chunk.data for chunk in read_chunks(execution.id, execution.attempt))
