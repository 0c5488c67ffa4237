"""Errors before the sandbox is built become one report; a run stopped meanwhile never starts."""

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

from jobs.domain.errors import ArtifactNotUploaded, StaleAttempt, StorageUnavailable
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, Registration
from tests.support.control_plane import MemoryControlPlane
from workers.errors import ControlPlaneUnavailable
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
from workers.lease.held_runs import HeldRuns
from workers.run import transfers
from workers.run.artifact_cache import ArtifactCache
from workers.run.log_stream import LogFlusher
from workers.run.run import RunContext, run_attempt
from workers.sandbox.sandbox import Sandbox

# any use raises, and is reported as a sandbox error
NO_SANDBOX = cast("Sandbox", None)


@pytest.fixture(scope="module")
def guardian() -> Iterator[Guardian]:
    guardian = Guardian(60.0)
    yield guardian
    guardian.close()


@pytest.fixture
def plane() -> MemoryControlPlane:
    plane = MemoryControlPlane()
    at = datetime.now(UTC)
    plane.claimed = ClaimedRun(
        uuid4(), 1, uuid4(), "job", uuid4(), at, at, "bash", "[]", "{}", 1.0, 1, 1, 1.0, "0" * 64, 1
    )
    return plane


@pytest.fixture
def context(plane: MemoryControlPlane, guardian: Guardian, tmp_path: Path) -> RunContext:
    held = HeldRuns(Registration(plane.worker_id, 1))
    guardian.lease_renewed(boottime())
    return RunContext(plane, NO_SANDBOX, guardian, {}, ArtifactCache(tmp_path, 100), LogFlusher(), held)


@pytest.fixture
def fence(plane: MemoryControlPlane) -> AttemptFence:
    return AttemptFence(uuid4(), 1, plane.worker_id, 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"FETCH_RETRY": 0.1, "DISK_RETRY": 0.1, "STORE_RETRY": 0.1, "FIRST_PAUSE": 0.01}.items():
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
        (RuntimeError("unexpected"), Reason.SANDBOX_ERROR),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_every_error_becomes_one_report(
    plane: MemoryControlPlane, context: RunContext, fence: AttemptFence, error: Exception, reason: Reason
) -> None:
    plane.on_read = failing(error)
    assert run_attempt(context, fence) is not None
    assert [report.reason for report in plane.reports] == [reason]
    assert plane.reports[0].error
    assert context.held.attempts() == []


@pytest.mark.usefixtures("impatient")
def test_program_with_wrong_hash_is_never_run(
    plane: MemoryControlPlane, context: RunContext, fence: AttemptFence
) -> None:
    plane.on_read = lambda _sha256: iter([b"x"])
    run_attempt(context, fence)
    assert [report.reason for report in plane.reports] == [Reason.ARTIFACT_MISMATCH]
    assert "start" not in plane.calls


def test_reassigned_attempt_is_not_reported(
    plane: MemoryControlPlane, context: RunContext, fence: AttemptFence
) -> None:
    plane.on_read = failing(StaleAttempt())
    assert run_attempt(context, fence) is None
    assert plane.reports == []


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.RELEASED])
def test_stop_during_fetch_prevents_start(
    plane: MemoryControlPlane, context: RunContext, fence: AttemptFence, reason: Reason
) -> None:
    assert plane.claimed is not None
    data = b"x"
    plane.claimed = dataclasses.replace(plane.claimed, sha256=hashlib.sha256(data).hexdigest())

    def read(_sha256: str) -> Iterator[bytes]:
        context.held.stop(fence.execution_id, fence.attempt, reason)
        yield data

    plane.on_read = read
    run_attempt(context, fence)
    assert [report.reason for report in plane.reports] == [reason]


def test_unavailable_secret_prevents_fetch_and_run(
    plane: MemoryControlPlane, context: RunContext, fence: AttemptFence
) -> None:
    assert plane.claimed is not None
    secrets = [
        {"name": "a", "value": "one two", "env": "A"},
        {"name": "b", "env": "B", "problem": "The secret b does not exist any more."},
        {"name": "c", "path": "c", "problem": "The secret c does not exist any more."},
    ]
    plane.claimed = dataclasses.replace(plane.claimed, secrets=json.dumps(secrets))
    plane.on_read = failing(StorageUnavailable())
    run_attempt(context, fence)
    (report,) = plane.reports
    assert (report.reason, report.error) == (Reason.SECRET_UNAVAILABLE, "The secret b does not exist any more.")


def test_duplicate_message_claims_nothing(plane: MemoryControlPlane, context: RunContext, fence: AttemptFence) -> None:
    with context.held.holding(fence):
        assert run_attempt(context, fence) is None
    assert plane.calls == []


def test_draining_worker_claims_nothing(plane: MemoryControlPlane, context: RunContext, fence: AttemptFence) -> None:
    context.held.close()
    assert run_attempt(context, fence) is None
    assert plane.calls == []


def test_claim_during_outage_is_logged_in_one_line(
    plane: MemoryControlPlane,
    context: RunContext,
    fence: AttemptFence,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def claim(_: AttemptFence) -> ClaimedRun:
        raise ControlPlaneUnavailable("connection refused")

    monkeypatch.setattr(plane, "claim", claim)
    assert run_attempt(context, fence) is None
    (line,) = caplog.records
    assert "was not claimed: connection refused" in line.getMessage()
    assert line.exc_info is None, "no traceback"
    assert plane.reports == []
    assert context.held.attempts() == [], "beat releases unlisted attempts"


def test_worker_with_expired_lease_claims_nothing(
    plane: MemoryControlPlane, context: RunContext, fence: AttemptFence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context.guardian, "_renewed_at", boottime() - 61)
    assert run_attempt(context, fence) is None
    assert plane.calls == []
    assert plane.reports == []
    assert context.held.taken == 1, "the worker counts as responsive"
