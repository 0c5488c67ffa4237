"""What a guardian does to a real sandbox: as root, as an ordinary user, on every kind of host."""

import contextlib
import os
import signal
import uuid
from pathlib import Path

from tests.integration.sandbox.cases import CASES, case
from tests.integration.sandbox.driving import (
    Recorder,
    limits,
    processes_in_namespace_of,
    processes_with,
    shell,
)
from tests.waiting import eventually
from workers.guardian import Guardian
from workers.guardian_process import now
from workers.sandbox import EndReason, Run, Sandbox, Stream, run_self_test
from workers.sandbox.self_test import PROBES

__all__ = ["CASES"]

FOREVER = 600.0


@case
def nothing_breaks_out(sandbox: Sandbox) -> None:
    here = Path(__file__).parent
    result = run_self_test(sandbox, worker_directory=here, python="/usr/bin/python3", memory_is_metered=True)
    assert result.held == tuple(PROBES), result


@case
def a_guardian_ends_what_is_frozen(sandbox: Sandbox) -> None:
    guardian = Guardian(FOREVER)
    guardian.trust(now())
    frozen: list[int] = []
    try:
        with (
            guardian.ward() as ward,
            sandbox.start(
                shell("setsid sleep 1000 & sleep 1000; echo alive"), limits(), lambda run: ward.admit(run.pidfd)
            ) as run,
        ):
            assert eventually(lambda: processes_in_namespace_of(run.pid) >= 4), "it and what it started"
            # the launcher, bubblewrap outside, and all that is inside
            monitor = _parent(run.pid)
            frozen = [_parent(monitor), monitor, *_namespace_of(run.pid)]
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            guardian.close()
            assert eventually(lambda: processes_in_namespace_of(run.pid) == 0), "dead, though nobody could move"
            for pid in frozen[:2]:
                os.kill(pid, signal.SIGCONT)
            record = Recorder()
            outcome = run.stream(record)
        assert (outcome.reason, outcome.signal) == (EndReason.SIGNAL, signal.SIGKILL)
        assert record.streams[Stream.STDOUT] == b""
    finally:
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        guardian.close()


@case
def an_expired_lease_ends_it_and_a_renewed_one_does_not(sandbox: Sandbox) -> None:
    guardian = Guardian(FOREVER)
    try:
        guardian.trust(now() - 2 * FOREVER)
        assert _say(sandbox, guardian) == (b"", True), "what was taken while expired ran no instruction"
        guardian.trust(now())
        assert _say(sandbox, guardian) == (b"ran\n", False)
    finally:
        guardian.close()


@case
def what_nobody_guards_is_never_let_go(sandbox: Sandbox) -> None:
    marker = f"marker-{uuid.uuid4()}"

    def refuse(run: Run) -> None:
        assert processes_with(marker), "it was built and waits"
        raise KeyError("no guardian")

    try:
        sandbox.start(shell("sleep 1000; : $0", marker), limits(), refuse)
        raise AssertionError("it was let go")
    except KeyError:
        assert processes_with(marker) == []


def _say(sandbox: Sandbox, guardian: Guardian) -> tuple[bytes, bool]:
    record = Recorder()
    with (
        guardian.ward() as ward,
        sandbox.start(shell("echo ran"), limits(), lambda run: ward.admit(run.pidfd)) as run,
    ):
        run.stream(record)
        return record.streams[Stream.STDOUT], ward.was_killed()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _namespace_of(pid: int) -> list[int]:
    wanted = os.stat(f"/proc/{pid}/ns/pid").st_ino
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.stat(entry / "ns/pid").st_ino == wanted:
                found.append(int(entry.name))
    return found
