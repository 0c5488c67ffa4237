"""An outage is waited out in place, a wish to stop is obeyed, and wrong bytes are fetched anew before they count."""

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

from jobs.errors import (
    ArtifactHashMismatch,
    ArtifactNotUploaded,
    InvalidInput,
    PunctualError,
    StaleAttempt,
    StorageUnavailable,
)
from jobs.protocol import Hold, StoredOutput
from jobs.states import Reason
from tests.unit.workers.control_plane import MemoryControlPlane
from workers import transfers
from workers.artifact_cache import ArtifactCache
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable, TransferStopped
from workers.held_runs import HeldRun
from workers.transfers import Patience, fetch_artifact, store_output

DATA = b"echo hello"
SHA256 = hashlib.sha256(DATA).hexdigest()
HOLD = Hold(uuid4(), 1, uuid4(), 1)


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(transfers, "MAX_AGAIN_SECONDS", 0.001)


class Fetcher:
    """Fetches through a cache of its own, and each try goes as it is told; the last one stays."""

    def __init__(self, directory: Path, *tries: bytes | Exception) -> None:
        self.tries = list(tries)
        self.made = 0
        self.held = HeldRun()
        self._plane = MemoryControlPlane()
        self._plane.on_read = self._read
        self._cache = ArtifactCache(directory, 1000)

    def fetch(self, ends_at: float | None = None) -> bytes:
        patience = Patience(self.held, ends_at)
        descriptor = fetch_artifact(self._cache, self._plane, patience, uuid4(), sha256=SHA256, size=len(DATA))
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
def test_what_passes_is_waited_for(tmp_path: Path, failures: list[bytes | Exception]) -> None:
    fetcher = Fetcher(tmp_path, *failures, DATA)
    assert fetcher.fetch() == DATA
    assert fetcher.made == len(failures) + 1


@pytest.mark.parametrize("wrong", [b"evil bytes", ArtifactNotUploaded()])
def test_what_stays_wrong_is_believed_after_a_few_looks_and_said_in_words(
    tmp_path: Path, wrong: bytes | Exception
) -> None:
    fetcher = Fetcher(tmp_path, wrong)
    with pytest.raises((ArtifactHashMismatch, ArtifactNotUploaded), match=f"{SHA256}.* again"):
        fetcher.fetch()
    assert fetcher.made == transfers.MISMATCHES


@pytest.mark.parametrize(
    ("setting", "failure", "words"),
    [
        ("FETCH_FOR_SECONDS", StorageUnavailable("away"), "away"),
        ("KEEP_FOR_SECONDS", OSError(errno.ENOSPC, "No space left on device"), "disk: No space left on device"),
    ],
)
def test_patience_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, failure: Exception, words: str
) -> None:
    monkeypatch.setattr(transfers, setting, 0.05)
    with pytest.raises(StorageUnavailable, match=words):
        Fetcher(tmp_path, failure).fetch()


def test_nothing_is_waited_for_past_the_deadline_of_the_execution(tmp_path: Path) -> None:
    fetcher = Fetcher(tmp_path, StorageUnavailable())
    with pytest.raises(StorageUnavailable):
        fetcher.fetch(ends_at=time.monotonic() - 1)
    assert fetcher.made == 1


def test_a_stop_ends_the_wait_for_a_program(tmp_path: Path) -> None:
    fetcher = Fetcher(tmp_path, StorageUnavailable())
    fetcher.held.stop(Reason.CANCELLED)
    with pytest.raises(TransferStopped):
        fetcher.fetch()
    assert fetcher.made == 1


@pytest.mark.parametrize("follows", [False, True])
def test_a_download_that_drips_is_left_at_the_deadline(tmp_path: Path, follows: bool) -> None:
    """Also by one that waits for the download of another run."""
    plane, cache = MemoryControlPlane(), ArtifactCache(tmp_path, 1000)
    begun, over, other = threading.Event(), threading.Event(), HeldRun()

    def drip(_sha256: str) -> Iterator[bytes]:
        while not over.wait(0.02):
            begun.set()
            yield b"x"
        raise StorageUnavailable

    def fetch(patience: Patience) -> None:
        os.close(fetch_artifact(cache, plane, patience, uuid4(), sha256=SHA256, size=1_000_000))

    plane.on_read = drip
    with ThreadPoolExecutor(2) as pool:
        leaders = [pool.submit(fetch, Patience(other))] if follows else []
        try:
            assert begun.wait(10 if follows else 0) == follows
            with pytest.raises(StorageUnavailable, match="deadline"):
                pool.submit(fetch, Patience(HeldRun(), time.monotonic() + 0.1)).result(10)
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

    def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
        if self.failures:
            self.on_failure()
            raise self.failures.pop(0)
        self.stored = body.read()


def store(plane: Storing, held: HeldRun | None = None) -> None:
    store_output(plane, Patience(held or HeldRun()), HOLD, StoredOutput("a", len(DATA), SHA256), io.BytesIO(DATA))


def test_an_output_is_stored_once_it_can_be() -> None:
    plane = Storing(*[StorageUnavailable()] * 10, ControlPlaneUnavailable())
    store(plane)
    assert plane.stored == DATA


def test_a_stop_ends_the_wait_for_outputs() -> None:
    held = HeldRun()
    plane = Storing(*[StorageUnavailable()] * 10, on_failure=lambda: held.stop(Reason.CANCELLED))
    with pytest.raises(TransferStopped):
        store(plane, held)
    assert len(plane.failures) == 9


def test_the_wait_for_outputs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STORE_FOR_SECONDS", 0.0)
    with pytest.raises(StorageUnavailable):
        store(Storing(StorageUnavailable()))


def test_an_output_under_way_is_not_read_on_when_the_run_is_to_stop() -> None:
    held = HeldRun()

    class Reading(MemoryControlPlane):
        def store_output(self, hold: Hold, output: StoredOutput, body: IO[bytes]) -> None:
            body.seek(0)
            assert len(body.read(transfers.READ_BYTES)) == transfers.READ_BYTES
            held.stop(Reason.CANCELLED)
            body.read(2 * transfers.READ_BYTES)

    file = io.BytesIO(bytes(10 * transfers.READ_BYTES))
    with pytest.raises(TransferStopped):
        store_output(Reading(), Patience(held), HOLD, StoredOutput("a", len(file.getvalue()), SHA256), file)
    assert not file.closed


def test_all_transfers_of_a_run_have_one_patience_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "STORE_FOR_SECONDS", 0.5)
    monkeypatch.setattr(transfers, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(transfers, "MAX_AGAIN_SECONDS", 0.2)
    patience, plane = Patience(HeldRun()), Storing()

    def store_another() -> bool:
        plane.failures = [StorageUnavailable()]
        try:
            store_output(plane, patience, HOLD, StoredOutput("a", len(DATA), SHA256), io.BytesIO(DATA))
        except StorageUnavailable:
            return False
        return True

    stored = [store_another() for _ in range(5)]
    assert stored[0]
    assert not any(stored[3:])


@pytest.mark.parametrize("refusal", [StaleAttempt(), ControlPlaneRefused(), InvalidInput("size", "too much")])
def test_what_is_refused_for_good_is_not_tried_again(refusal: PunctualError) -> None:
    plane = Storing(refusal)
    with pytest.raises(type(refusal)):
        store(plane)
    assert plane.stored == b""
