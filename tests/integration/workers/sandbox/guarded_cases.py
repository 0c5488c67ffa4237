"""Guardian and deadline with real sandboxes: as root, as an ordinary user, on every kind of host."""

import contextlib
import math
import os
import signal
import uuid
from pathlib import Path

from tests.integration.workers.sandbox.cases import case
from tests.integration.workers.sandbox.input_cases import CASES
from tests.support.driving import Recorder, limits, processes_in_namespace_of, processes_with, shell
from tests.support.waiting import eventually
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
from workers.sandbox.errors import SandboxError
from workers.sandbox.run import Run
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.self_test.runner import PROBES, run_self_test
from workers.sandbox.values import ExitReason, Stream

__all__ = ["CASES"]

FOREVER = 600.0


@case
def nothing_breaks_out(sandbox: Sandbox) -> None:
    here = Path(__file__).parent
    result = run_self_test(sandbox, worker_directory=here, python="/usr/bin/python3", memory_is_metered=True)
    assert result.held == tuple(PROBES), result


@case
def guardian_kills_frozen_sandbox(sandbox: Sandbox) -> None:
    guardian = Guardian(FOREVER)
    guardian.lease_renewed(boottime())
    frozen: list[int] = []
    try:
        with (
            guardian.guard_run() as guarded,
            sandbox.start(
                shell("setsid sleep 1000 & sleep 1000; echo alive"), limits(), lambda run: guarded.admit(run.pidfd)
            ) as run,
        ):
            assert eventually(lambda: processes_in_namespace_of(run.pid) >= 4), "the program and its child"
            # the launcher, bubblewrap outside, and all processes inside
            monitor = _parent(run.pid)
            frozen = [_parent(monitor), monitor, *_namespace_of(run.pid)]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            guardian.close()
            assert eventually(lambda: processes_in_namespace_of(run.pid) == 0), "killed although all outside is frozen"
            for pid in frozen[:2]:
                os.kill(pid, signal.SIGCONT)
            record = Recorder()
            outcome = run.stream(record)
        assert (outcome.reason, outcome.signal) == (ExitReason.SIGNAL, signal.SIGKILL)
        assert record.streams[Stream.STDOUT] == b""
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        guardian.close()


@case
def expired_lease_kills_sandbox_and_renewed_one_does_not(sandbox: Sandbox) -> None:
    guardian = Guardian(FOREVER)
    try:
        guardian.lease_renewed(boottime() - 2 * FOREVER)
        assert _say(sandbox, guardian) == (b"", True), "a sandbox admitted while expired runs no instruction"
        guardian.lease_renewed(boottime())
        assert _say(sandbox, guardian) == (b"ran\n", False)
    finally:
        guardian.close()


@case
def run_ends_at_the_deadline_if_everything_outside_is_frozen(sandbox: Sandbox) -> None:
    frozen: list[int] = []
    try:
        sandbox.set_deadline(boottime() + 2.5)
        with sandbox.start(shell("setsid sleep 1000 & while :; do sleep 0.1; done"), limits()) as run:
            monitor = _parent(run.pid)
            frozen = [monitor, _parent(monitor), *_launchers()]
            assert len(frozen) == 3, "bubblewrap outside, its slot, the launcher"
            assert processes_in_namespace_of(run.pid) > 0
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            assert eventually(lambda: processes_in_namespace_of(run.pid) == 0, seconds=10)
            outcome = run.stream(Recorder())
        assert outcome.reason is ExitReason.KILLED, "it did not exit itself"
    finally:
        sandbox.set_deadline(math.inf)
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@case
def renewed_deadline_kills_nothing_and_passed_one_starts_nothing(sandbox: Sandbox) -> None:
    try:
        sandbox.set_deadline(boottime() + 1)
        record = Recorder()
        with sandbox.start(shell("sleep 2; echo ran"), limits()) as run:
            sandbox.set_deadline(boottime() + 60)
            assert run.stream(record).reason is ExitReason.EXIT
        assert record.streams[Stream.STDOUT] == b"ran\n"
        sandbox.set_deadline(boottime() - 1)
        assert not _starts(sandbox)
        sandbox.set_deadline(boottime() + 60)
        assert _starts(sandbox)
    finally:
        sandbox.set_deadline(math.inf)


def _starts(sandbox: Sandbox) -> bool:
    try:
        with sandbox.start(shell("true"), limits()) as run:
            return run.stream(Recorder()).reason is ExitReason.EXIT
    except SandboxError:
        return False


@case
def unguarded_program_never_starts(sandbox: Sandbox) -> None:
    marker = f"marker-{uuid.uuid4()}"

    def refuse(run: Run) -> None:
        assert processes_with(marker), "it is built and waits"
        raise KeyError("no guardian")

    try:
        sandbox.start(shell("sleep 1000; : $0", marker), limits(), refuse)
        raise AssertionError("the program was started")
    except KeyError:
        # The sandbox's pid 1 is dead; bubblewrap, its monitor, exits a moment later.
        assert eventually(lambda: processes_with(marker) == [])


def _say(sandbox: Sandbox, guardian: Guardian) -> tuple[bytes, bool]:
    record = Recorder()
    with (
        guardian.guard_run() as guarded,
        sandbox.start(shell("echo ran"), limits(), lambda run: guarded.admit(run.pidfd)) as run,
    ):
        run.stream(record)
        return record.streams[Stream.STDOUT], guarded.was_killed()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _launchers() -> list[int]:
    return [pid for pid in processes_with("launcher_process") if _parent(pid) == os.getpid()][-1:]


def _namespace_of(pid: int) -> list[int]:
    wanted = os.stat(f"/proc/{pid}/ns/pid").st_ino
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.stat(entry / "ns/pid").st_ino == wanted:
                found.append(int(entry.name))
    return found
