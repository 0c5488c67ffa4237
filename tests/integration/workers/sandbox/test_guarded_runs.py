"""Runs killed by the guardian are released; other SIGKILLs are not."""

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

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, ClaimedRun, Registration
from tests.support.control_plane import MemoryControlPlane
from tests.support.waiting import wait_for
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
from workers.lease.held_runs import HeldRuns
from workers.run.artifact_cache import ArtifactCache
from workers.run.log_stream import LogFlusher
from workers.run.run import RunContext, run_attempt
from workers.sandbox.host import Host
from workers.sandbox.pidfd import wait_for_exit
from workers.sandbox.run import Run
from workers.sandbox.runtimes import find_runtimes
from workers.sandbox.sandbox import Sandbox

LIMIT = 600.0


@pytest.fixture
def plane() -> MemoryControlPlane:
    return MemoryControlPlane()


@pytest.fixture
def context(plane: MemoryControlPlane, host: Host, tmp_path: Path) -> Iterator[RunContext]:
    sandbox, guardian = Sandbox(host), Guardian(LIMIT)
    held = HeldRuns(Registration(plane.worker_id, 1))
    cache = ArtifactCache(tmp_path, 100_000)
    yield RunContext(plane, sandbox, guardian, find_runtimes(sandbox), cache, LogFlusher(), held)
    guardian.close()
    sandbox.close()


def run(context: RunContext, plane: MemoryControlPlane, script: str) -> AttemptFence:
    data, moment = script.encode(), datetime.now(UTC)
    digest = hashlib.sha256(data).hexdigest()
    hold = AttemptFence(uuid4(), 1, plane.worker_id, 1)
    plane.claimed = ClaimedRun(
        *(hold.execution_id, 1, uuid4(), "job", uuid4(), moment, moment, "bash", "[]", "{}"),
        *(1.0, 64, 4, 60.0, digest, len(data)),
    )
    plane.on_read = lambda _sha256: iter([data])
    run_attempt(context, hold)
    return hold


def test_run_killed_by_guardian_is_released(
    plane: MemoryControlPlane, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.guardian.lease_renewed(boottime() - LIMIT - 1)
    # The claim came before the lease expired.
    monkeypatch.setattr(context.guardian, "expired", lambda: False)
    run(context, plane, "sleep 1000")
    (report,) = plane.reports
    assert (report.reason, report.exit_code, report.signal) == (Reason.RELEASED, None, None)


def test_run_whose_lease_ends_while_its_sandbox_is_built_is_released(
    plane: MemoryControlPlane, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.guardian.lease_renewed(boottime() - LIMIT - 1)
    context.sandbox.set_deadline(boottime() - 1)
    answers = iter([False])  # at the claim
    monkeypatch.setattr(context.guardian, "expired", lambda: next(answers, True))
    run(context, plane, "echo ran")
    (report,) = plane.reports
    assert report.reason is Reason.RELEASED, "it uses no try"
    assert "log" not in plane.calls, "the program did not start"


def test_run_that_kills_itself_is_not_released(plane: MemoryControlPlane, context: RunContext) -> None:
    context.guardian.lease_renewed(boottime())
    run(context, plane, "kill -9 $$")
    (report,) = plane.reports
    assert (report.reason, report.signal) == (Reason.EXIT, signal.SIGKILL)


def test_run_without_guardian_is_released_and_never_starts(
    plane: MemoryControlPlane, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context.guardian.lease_renewed(boottime())
    run(context, plane, "true")  # also starts the launcher
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    os.kill(context.guardian.pid, signal.SIGKILL)
    plane.calls.clear()
    run(context, plane, "true")
    assert plane.reports[-1].reason is Reason.RELEASED
    assert plane.reports[-1].error
    assert plane.calls == ["claim"], "the program did not start"


def test_stop_while_sandbox_is_built_prevents_the_program(
    plane: MemoryControlPlane, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the lease may be lost and renewed by a new registration, so that the guardian is not expired."""
    release = Run.release

    def release_and_fall_asleep(run: Run) -> None:
        release(run)
        wait_for_exit(run.pidfd, 20)

    monkeypatch.setattr(Run, "release", release_and_fall_asleep)
    context.guardian.lease_renewed(boottime())
    run(context, plane, "true")
    plane.calls.clear()
    os.kill(context.guardian.pid, signal.SIGSTOP)
    thread = threading.Thread(target=run, args=(context, plane, "echo ran"))
    thread.start()
    launched = wait_for(context.held.attempts, "the attempt is held")
    children = psutil.Process().children
    wait_for(lambda: any("bwrap" in each.cmdline() for each in children(recursive=True)), "the sandbox is built")
    context.held.stop(*launched[0], Reason.RELEASED)
    os.kill(context.guardian.pid, signal.SIGCONT)
    thread.join(20)
    assert plane.reports[-1].reason is Reason.RELEASED
    assert "log" not in plane.calls, "nothing was logged"
