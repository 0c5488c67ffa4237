"""The kernel timer of a slot: no program starts without it, and every renewal postpones it."""

import dataclasses
import os
import signal
import subprocess
import uuid

import pytest

from tests.support.driving import limits, processes_with, shell
from tests.support.waiting import wait_for
from workers.lease.guardian_process import boottime
from workers.sandbox.cgroups.lifecycle import CgroupParents
from workers.sandbox.errors import SandboxError
from workers.sandbox.host import Host
from workers.sandbox.pipes import Pipes
from workers.sandbox.run import Run
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.slots import slot_process
from workers.sandbox.slots.deadline import Deadline, Timer


def test_program_started_after_its_slot_died_is_killed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a worker that is frozen after it has checked the slot."""
    marker, started, release = f"marker-{uuid.uuid4()}", list[Run](), Pipes.release

    def release_late(pipes: Pipes) -> None:
        slot = started[0]._pooled.slot
        os.kill(slot.pid, signal.SIGKILL)
        wait_for(lambda: not slot.alive, "the slot is dead")
        release(pipes)

    monkeypatch.setattr(Pipes, "release", release_late)
    sandbox = Sandbox(dataclasses.replace(host, cgroups=CgroupParents()))
    try:
        with pytest.raises(SandboxError, match="while the program was started"):
            sandbox.start(shell("sleep 1000; : $0", marker), limits(), started.append)
        wait_for(lambda: not processes_with(marker), "all its processes are gone")
    finally:
        for run in started:
            run.kill()
        sandbox.close()


def test_lease_renewed_while_slot_reaps_keeps_it_alive() -> None:
    deadline = Deadline()
    deadline.set(boottime() + 2)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        timer = Timer(deadline.descriptor, deadline.runs)
        timer.arm()
        os.write(writing, b"armed")
        slot_process.reap([subprocess.Popen(["sleep", "4"]).pid], timer)
        os._exit(0)
    assert os.read(reading, 16) == b"armed"
    deadline.set(boottime() + 60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(reading)
    os.close(writing)
