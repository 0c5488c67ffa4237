"""Transfers: outages are retried, stops take effect, wrong bytes are fetched again."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest

from jobs.domain.errors import (
    ArtifactHashMismatch,
    ArtifactNotUploaded,
    InvalidInput,
    PunctualError,
    StaleAttempt,
    StorageUnavailable,
)
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, StoredOutput
from tests.support.control_plane import MemoryControlPlane
from workers.errors import ControlPlaneUnavailable, TransferStopped, WorkerTokenRejected
from workers.lease.held_runs import HeldRun
from workers.run import transfers
from workers.run.artifact_cache import ArtifactCache
from workers.run.transfers import RetryBudget, fetch_artifact, store_output

DATA = b"echo hello"
SHA256 = hashlib.sha256(DATA).hexdigest()
FENCE = AttemptFence(uuid4(), 1, uuid4(), 1)


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(transfers, "MAX_PAUSE_SECONDS", 0.001)


class Fetcher:
    """Fetch through a new cache; each try has the next of these results, the last one repeats."""

    def __init__(self, directory: Path, *tries: bytes | Exception) -> None:
        self.tries = list(tries)
        self.made = 0
        self.held = HeldRun()
        self._plane = MemoryControlPlane()
        self._plane.on_read = self._read
        self._cache = ArtifactCache(directory, 1000)

    def fetch(self, ends_at: float | None = None) -> bytes:
        budget = RetryBudget(self.held, ends_at)
        descriptor = fetch_artifact(self._cache, self._plane, budget, uuid4(), sha256=SHA256, size=len(DATA))
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def _read(self, _sha256: str) -> Iterator[bytes]:
        came = self.tries[min(self.made, len(self.tries) - 1)]
        self.made += 1
        if isinstance(came, Exception):
            raise came
        yield came


@pytest.mark.parametrize(
    "failures",
    [
        [StorageUnavailable()] * 20,
        [OSError(errno.ENOSPC, "No space left on device")],
        [b"evil bytes", b"short"],
        [ArtifactNotUploaded(), b"evil bytes"],
    ],
)
def test_transient_fetch_error_is_retried(tmp_path: Path, failures: list[bytes | Exception]) -> None:
    fetcher = Fetcher(tmp_path, *failures, DATA)
    assert fetcher.fetch() == DATA
    assert fetcher.made == len(failures) + 1


@pytest.mark.parametrize("wrong", [b"evil bytes", ArtifactNotUploaded()])
def test_persistent_mismatch_fails_with_explanation(tmp_path: Path, wrong: bytes | Exception) -> None:
    fetcher = Fetcher(tmp_path, wrong)
    with pytest.raises((ArtifactHashMismatch, ArtifactNotUploaded), match=f"{SHA256}.* again"):
        fetcher.fetch()
    assert fetcher.made == transfers.MAX_MISMATCHES


@pytest.mark.parametrize(
    ("setting", "failure", "message"),
    [
        ("FETCH_RETRY_SECONDS", StorageUnavailable("away"), "away"),
        ("DISK_RETRY_SECONDS", OSError(errno.ENOSPC, "No space left on device"), "disk: No space left on device"),
    ],
)
def test_retry_budget_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, failure: Exception, message: str
) -> None:
    monkeypatch.setattr(transfers, setting, 0.05)
    with pytest.raises(StorageUnavailable, match=message):
        Fetcher(tmp_path, failure).fetch()


def test_fetch_is_not_retried_past_the_deadline(tmp_path: Path) -> None:
    fetcher = Fetcher(tmp_path, StorageUnavailable())
    with pytest.raises(StorageUnavailable):
        fetcher.fetch(ends_at=time.monotonic() - 1)
    assert fetcher.made == 1


def test_stop_interrupts_fetch_retries(tmp_path: Path) -> None:
    fetcher = Fetcher(tmp_path, StorageUnavailable())
    fetcher.held.stop(Reason.CANCELLED)
    with pytest.raises(TransferStopped):
        fetcher.fetch()
    assert fetcher.made == 1


@pytest.mark.parametrize("follows", [False, True])
def test_slow_download_is_aborted_at_the_deadline(tmp_path: Path, follows: bool) -> None:
    """This includes runs that wait for another run's download."""
    plane, cache = MemoryControlPlane(), ArtifactCache(tmp_path, 1000)
    begun, over, other = threading.Event(), threading.Event(), HeldRun()

    def drip(_sha256: str) -> Iterator[bytes]:
        while not over.wait(0.02):
            begun.set()
            yield b"x"
        raise StorageUnavailable

    def fetch(budget: RetryBudget) -> None:
        os.close(fetch_artifact(cache, plane, budget, uuid4(), sha256=SHA256, size=1_000_000))

    plane.on_read = drip
    with ThreadPoolExecutor(2) as pool:
        leaders = [pool.submit(fetch, RetryBudget(other))] if follows else []
        try:
            assert begun.wait(10 if follows else 0) == follows
            with pytest.raises(StorageUnavailable, match="deadline"):
                pool.submit(fetch, RetryBudget(HeldRun(), time.monotonic() + 0.1)).result(10)
        finally:
            other.stop(Reason.CANCELLED)
            over.set()
        assert [type(leader.exception(10)) for leader in leaders] == [TransferStopped] * follows


class Storing(MemoryControlPlane):
    def __init__(self, *failures: Exception, on_failure: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.failures = list(failures)
        self.stored = b""
        self.on_failure = on_failure

    def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None:
        if self.failures:
            self.on_failure()
            raise self.failures.pop(0)
        self.stored = body.read()


def store(plane: Storing, held: HeldRun | None = None) -> None:
    store_output(plane, RetryBudget(held or HeldRun()), FENCE, StoredOutput("a", len(DATA), SHA256), io.BytesIO(DATA))


def test_output_storage_is_retried() -> None:
    plane = Storing(*[StorageUnavailable()] * 10, ControlPlaneUnavailable())
    store(plane)
    assert plane.stored == DATA


def test_stop_interrupts_output_retries() -> None:
    held = HeldRun()
    plane = Storing(*[StorageUnavailable()] * 10, on_failure=lambda: held.stop(Reason.CANCELLED))
    with pytest.raises(TransferStopped):
        store(plane, held)
    assert len(plane.failures) == 9


def test_output_retry_budget_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STORE_RETRY_SECONDS", 0.0)
    with pytest.raises(StorageUnavailable):
        store(Storing(StorageUnavailable()))


def test_stop_interrupts_upload() -> None:
    held = HeldRun()

    class Reading(MemoryControlPlane):
        def store_output(self, fence: AttemptFence, output: StoredOutput, body: IO[bytes]) -> None:
            body.seek(0)
            assert len(body.read(transfers.READ_BYTES)) == transfers.READ_BYTES
            held.stop(Reason.CANCELLED)
            body.read(2 * transfers.READ_BYTES)

    file = io.BytesIO(bytes(10 * transfers.READ_BYTES))
    with pytest.raises(TransferStopped):
        store_output(Reading(), RetryBudget(held), FENCE, StoredOutput("a", len(file.getvalue()), SHA256), file)
    assert not file.closed


def test_transfers_of_a_run_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STORE_RETRY_SECONDS", 0.5)
    monkeypatch.setattr(transfers, "FIRST_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(transfers, "MAX_PAUSE_SECONDS", 0.2)
    budget, plane = RetryBudget(HeldRun()), Storing()

    def store_another() -> bool:
        plane.failures = [StorageUnavailable()]
        try:
            store_output(plane, budget, FENCE, StoredOutput("a", len(DATA), SHA256), io.BytesIO(DATA))
        except StorageUnavailable:
            return False
        return True

    stored = [store_another() for _ in range(5)]
    assert stored[0]
    assert not any(stored[3:])


@pytest.mark.parametrize("refusal", [StaleAttempt(), WorkerTokenRejected(), InvalidInput("size", "too much")])
def test_rejected_token_is_not_retried(refusal: PunctualError) -> None:
    plane = Storing(refusal)
    with pytest.raises(type(refusal)):
        store(plane)
    assert plane.stored == b""
