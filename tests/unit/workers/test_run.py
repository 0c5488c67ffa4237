"""Whatever goes wrong before the sandbox is up, one report says so; a run that was stopped meanwhile never starts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest

from jobs.errors import ArtifactNotUploaded, StaleAttempt, StorageUnavailable
from jobs.protocol import Claimed, Hold, Registration
from jobs.states import Reason
from tests.unit.workers.control_plane import MemoryControlPlane
from workers import transfers
from workers.artifact_cache import ArtifactCache
from workers.errors import ControlPlaneUnavailable
from workers.guardian import Guardian
from workers.guardian_process import now
from workers.held_runs import HeldRuns
from workers.log_stream import LogFlusher
from workers.run import Equipment, run_attempt
from workers.sandbox import Sandbox

# reaching it would raise, and be reported as an error of the sandbox
NOBODY = cast("Sandbox", None)


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    guardian = Guardian(60.0)
    yield guardian
    guardian.close()


@pytest.fixture
def plane() -> MemoryControlPlane:
    plane = MemoryControlPlane()
    at = datetime.now(UTC)
    plane.claimed = Claimed(
        uuid4(), 1, uuid4(), "job", uuid4(), at, at, "bash", "[]", "{}", 1.0, 1, 1, 1.0, "0" * 64, 1
    )
    return plane


@pytest.fixture
def equipment(plane: MemoryControlPlane, guardian: Guardian, tmp_path: Path) -> Equipment:
    held = HeldRuns(Registration(plane.worker_id, 1))
    guardian.trust(now())
    return Equipment(plane, NOBODY, guardian, {}, ArtifactCache(tmp_path, 100), LogFlusher(), held)


@pytest.fixture
def hold(plane: MemoryControlPlane) -> Hold:
    return Hold(uuid4(), 1, plane.worker_id, 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"FETCH_FOR": 0.1, "KEEP_FOR": 0.1, "STORE_FOR": 0.1, "AGAIN": 0.01}.items():
        monkeypatch.setattr(transfers, f"{name}_SECONDS", seconds)


def failing(error: Exception) -> Callable[[str], Iterator[bytes]]:
    def read(_sha256: str) -> Iterator[bytes]:
        raise error

    return read


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StorageUnavailable(), Reason.ARTIFACT_UNAVAILABLE),
        (OSError("disk full"), Reason.ARTIFACT_UNAVAILABLE),
        (ArtifactNotUploaded(), Reason.ARTIFACT_MISMATCH),
        (ControlPlaneUnavailable("away"), Reason.RELEASED),
        (RuntimeError("nobody thought of this"), Reason.SANDBOX_ERROR),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_every_error_becomes_one_report(
    plane: MemoryControlPlane, equipment: Equipment, hold: Hold, error: Exception, reason: Reason
) -> None:
    plane.on_read = failing(error)
    assert run_attempt(equipment, hold) is not None
    assert [report.reason for report in plane.reports] == [reason]
    assert plane.reports[0].error
    assert equipment.held.pairs() == []


@pytest.mark.usefixtures("impatient")
def test_wrong_bytes_are_never_run(plane: MemoryControlPlane, equipment: Equipment, hold: Hold) -> None:
    plane.on_read = lambda _sha256: iter([b"x"])
    run_attempt(equipment, hold)
    assert [report.reason for report in plane.reports] == [Reason.ARTIFACT_MISMATCH]
    assert "start" not in plane.asked


def test_an_attempt_that_was_given_away_is_not_reported(
    plane: MemoryControlPlane, equipment: Equipment, hold: Hold
) -> None:
    plane.on_read = failing(StaleAttempt())
    assert run_attempt(equipment, hold) is None
    assert plane.reports == []


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.RELEASED])
def test_a_stop_while_the_program_is_fetched_keeps_it_from_starting(
    plane: MemoryControlPlane, equipment: Equipment, hold: Hold, reason: Reason
) -> None:
    assert plane.claimed is not None
    data = b"x"
    plane.claimed = dataclasses.replace(plane.claimed, sha256=hashlib.sha256(data).hexdigest())

    def read(_sha256: str) -> Iterator[bytes]:
        equipment.held.stop(hold.execution_id, hold.attempt, reason)
        yield data

    plane.on_read = read
    run_attempt(equipment, hold)
    assert [report.reason for report in plane.reports] == [reason]


def test_without_its_secrets_nothing_is_fetched_or_run(
    plane: MemoryControlPlane, equipment: Equipment, hold: Hold
) -> None:
    assert plane.claimed is not None
    secrets = [
        {"name": "a", "value": "one two", "env": "A"},
        {"name": "b", "env": "B", "problem": "The secret b does not exist any more."},
        {"name": "c", "path": "c", "problem": "The secret c does not exist any more."},
    ]
    plane.claimed = dataclasses.replace(plane.claimed, secrets=json.dumps(secrets))
    plane.on_read = failing(StorageUnavailable())
    run_attempt(equipment, hold)
    (report,) = plane.reports
    assert (report.reason, report.error) == (Reason.SECRET_UNAVAILABLE, "The secret b does not exist any more.")


def test_a_second_message_claims_nothing(plane: MemoryControlPlane, equipment: Equipment, hold: Hold) -> None:
    with equipment.held.holding(hold):
        assert run_attempt(equipment, hold) is None
    assert plane.asked == []


def test_a_draining_worker_claims_nothing(plane: MemoryControlPlane, equipment: Equipment, hold: Hold) -> None:
    equipment.held.close()
    assert run_attempt(equipment, hold) is None
    assert plane.asked == []


def test_a_worker_whose_lease_is_not_renewed_claims_nothing(
    plane: MemoryControlPlane, equipment: Equipment, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equipment.guardian, "_trusted_at", now() - 61)
    assert run_attempt(equipment, hold) is None
    assert plane.asked == []
    assert plane.reports == []
    assert equipment.held.taken == 1, "it hears, and is not suspect"
