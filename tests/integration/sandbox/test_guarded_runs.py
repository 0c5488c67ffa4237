"""A run that the guardian ended is released, one that died by the same signal otherwise is not."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from jobs.protocol import Claimed, Hold, Registration
from jobs.states import Reason
from tests.unit.workers.control_plane import MemoryControlPlane
from tests.waiting import wait_for
from workers.artifact_cache import ArtifactCache
from workers.guardian import Guardian
from workers.guardian_process import now
from workers.held_runs import HeldRuns
from workers.log_stream import LogFlusher
from workers.run import Equipment, run_attempt
from workers.sandbox import Host, Run, Sandbox, find_runtimes
from workers.sandbox.pidfd import is_over

LIMIT = 600.0


@pytest.fixture
def plane() -> MemoryControlPlane:
    return MemoryControlPlane()


@pytest.fixture
def equipment(plane: MemoryControlPlane, host: Host, tmp_path: Path) -> Iterator[Equipment]:
    sandbox, guardian = Sandbox(host), Guardian(LIMIT)
    held = HeldRuns(Registration(plane.worker_id, 1))
    cache = ArtifactCache(tmp_path, 100_000)
    yield Equipment(plane, sandbox, guardian, find_runtimes(sandbox), cache, LogFlusher(), held)
    guardian.close()
    sandbox.close()


def run(equipment: Equipment, plane: MemoryControlPlane, script: str) -> Hold:
    data, moment = script.encode(), datetime.now(UTC)
    digest = hashlib.sha256(data).hexdigest()
    hold = Hold(uuid4(), 1, plane.worker_id, 1)
    plane.claimed = Claimed(
        *(hold.execution_id, 1, uuid4(), "job", uuid4(), moment, moment, "bash", "[]", "{}"),
        *(1.0, 64, 4, 60.0, digest, len(data)),
    )
    plane.on_read = lambda _sha256: iter([data])
    run_attempt(equipment, hold)
    return hold


def test_what_the_guardian_ends_is_released(
    plane: MemoryControlPlane, equipment: Equipment, monkeypatch: pytest.MonkeyPatch
) -> None:
    equipment.guardian.trust(now() - LIMIT - 1)
    # It was claimed before that.
    monkeypatch.setattr(equipment.guardian, "expired", lambda: False)
    run(equipment, plane, "sleep 1000")
    (report,) = plane.reports
    assert (report.reason, report.exit_code, report.signal) == (Reason.RELEASED, None, None)


def test_what_ends_by_the_same_signal_by_itself_is_not(plane: MemoryControlPlane, equipment: Equipment) -> None:
    equipment.guardian.trust(now())
    run(equipment, plane, "kill -9 $$")
    (report,) = plane.reports
    assert (report.reason, report.signal) == (Reason.EXIT, signal.SIGKILL)


def test_what_gets_no_guardian_is_released_and_never_starts(
    plane: MemoryControlPlane, equipment: Equipment, monkeypatch: pytest.MonkeyPatch
) -> None:
    equipment.guardian.trust(now())
    run(equipment, plane, "true")  # starts the launcher, too
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    os.kill(equipment.guardian.pid, signal.SIGKILL)
    plane.asked.clear()
    run(equipment, plane, "true")
    assert plane.reports[-1].reason is Reason.RELEASED
    assert plane.reports[-1].error
    assert plane.asked == ["claim"], "not started"


def test_a_stop_while_the_sandbox_is_built_keeps_the_program_from_running(
    plane: MemoryControlPlane, equipment: Equipment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease may be lost and renewed by a new registration in between, with which the guardian trusts again."""
    release = Run.release

    def release_and_fall_asleep(run: Run) -> None:
        release(run)
        is_over(run.pidfd, 20)

    monkeypatch.setattr(Run, "release", release_and_fall_asleep)
    equipment.guardian.trust(now())
    run(equipment, plane, "true")
    plane.asked.clear()
    os.kill(equipment.guardian.pid, signal.SIGSTOP)
    thread = threading.Thread(target=run, args=(equipment, plane, "echo ran"))
    thread.start()
    launched = wait_for(equipment.held.pairs, "it is held")
    children = psutil.Process().children
    wait_for(lambda: any("bwrap" in each.cmdline() for each in children(recursive=True)), "the sandbox is built")
    equipment.held.stop(*launched[0], Reason.RELEASED)
    os.kill(equipment.guardian.pid, signal.SIGCONT)
    thread.join(20)
    assert plane.reports[-1].reason is Reason.RELEASED
    assert "log" not in plane.asked, "it said nothing"
