"""Runs leave no descriptor, process, cgroup or memory, even if their worker is killed."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from tests.support.driving import (
    MEBIBYTE,
    PATH,
    Recorder,
    children,
    execute,
    limits,
    processes_with,
    shell,
    slot_cgroups,
)
from tests.support.waiting import eventually
from workers.sandbox.cgroups.lifecycle import remove_stale_cgroups
from workers.sandbox.errors import SandboxError
from workers.sandbox.host import Host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.slots import slot_process
from workers.sandbox.values import ExitReason, Program

WORKER = """
import sys
from tests.support.driving import Recorder, limits, shell
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
sandbox = Sandbox(detect_host())
with sandbox.start(shell("setsid sleep 1000 & echo ready; sleep 1000; : $0", sys.argv[1]), limits()) as run:
    run.stream(lambda stream, data: print("ready", flush=True))
"""


def test_fifty_runs_leave_nothing_behind(sandbox: Sandbox) -> None:
    execute(sandbox, "true")
    slots = _slots()
    gc.collect()  # garbage of earlier tests may hold descriptors
    descriptors = len(os.listdir("/proc/self/fd"))
    theirs = [len(os.listdir(f"/proc/{pid}/fd")) for pid in slots]
    cgroups = slot_cgroups(os.getpid())
    threads = threading.active_count()
    for number in range(50):
        if number % 10 == 9:
            execute(sandbox, "sleep 100", limits(wall_seconds=0.05))
        elif number % 10 == 8:
            execute(sandbox, Program(("/missing",), PATH))
        else:
            execute(sandbox, "setsid sleep 100 & echo x > out/x")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert _slots() == slots, "all in the same slot"
    assert [len(os.listdir(f"/proc/{pid}/fd")) for pid in slots] == theirs
    assert threading.active_count() == threads
    assert [children(pid) for pid in slots] == [[]] * len(slots)
    assert slot_cgroups(os.getpid()) == cgroups


def test_a_closed_sandbox_leaves_neither_process_nor_cgroup(host: Host) -> None:
    before = slot_cgroups(os.getpid()), children(os.getpid())
    sandbox = Sandbox(host)
    sandbox.prepare(2)
    execute(sandbox, "true")
    (launcher,) = set(children(os.getpid())) - set(before[1])
    slots = children(launcher)
    assert len(slots) == 2
    sandbox.close()
    assert (slot_cgroups(os.getpid()), children(os.getpid())) == before
    assert [_cmdline(pid) for pid in slots] == [b"", b""]


def test_files_of_a_run_are_freed_with_it(host: Host) -> None:
    sandbox = Sandbox(host)
    before = _shared_memory()
    within = limits(disk=320 * MEBIBYTE, memory=256 * MEBIBYTE)
    with sandbox.start(shell("head -c 300000000 /dev/zero > out/big"), within) as run:
        assert run.stream(Recorder()).exit_code == 0
        assert os.stat("big", dir_fd=run.output_directory).st_size == 300_000_000
        assert _shared_memory() > before + 200 * MEBIBYTE
    assert eventually(lambda: _shared_memory() < before + 150 * MEBIBYTE)
    sandbox.close()


def test_killed_worker_kills_its_runs_and_the_next_one_cleans_up(host: Host) -> None:
    marker = f"marker-{uuid.uuid4()}"
    with subprocess.Popen([sys.executable, "-c", WORKER, marker], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        inside = [pid for pid in processes_with(marker) if pid != worker.pid]
        assert inside
        # the cgroups of a living worker are not removed
        before = slot_cgroups(worker.pid)
        assert bool(before) == (host.cgroup_mode != "none")
        remove_stale_cgroups()
        assert slot_cgroups(worker.pid) == before
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    assert eventually(lambda: processes_with(marker) == [])
    remove_stale_cgroups()
    assert slot_cgroups(worker.pid) == []


def test_dead_slot_ends_its_run_and_is_replaced(host: Host) -> None:
    sandbox = Sandbox(host)
    known, cgroups = set(_slots()), slot_cgroups(os.getpid())
    with sandbox.start(shell("echo ready; sleep 1000"), limits()) as run:
        (slot,) = set(_slots()) - known
        outcome = run.stream(Recorder(lambda _: os.kill(slot, signal.SIGKILL)))
    assert outcome.reason is ExitReason.KILLED, "not the program's fault"
    assert execute(sandbox, "echo again").stdout == b"again\n"
    sandbox.close()
    assert slot_cgroups(os.getpid()) == cgroups


def test_run_killed_with_its_slot_is_reported_after_replacement(host: Host) -> None:
    sandbox = Sandbox(host)
    known = set(_slots())
    with sandbox.start(shell("sleep 1000"), limits()) as run:
        (slot,) = set(_slots()) - known
        os.kill(slot, signal.SIGKILL)
        assert eventually(lambda: not _cmdline(slot))
        assert execute(sandbox, "echo again").stdout == b"again\n"
        assert run.stream(Recorder()).reason is ExitReason.KILLED, "not the program's fault"
    sandbox.close()


def test_dead_launcher_is_replaced_without_killing_runs(host: Host) -> None:
    sandbox = Sandbox(host)
    known = set(children(os.getpid()))
    with sandbox.start(shell("echo ready; read line; exit 7"), limits()) as run:
        (launcher,) = set(children(os.getpid())) - known
        os.kill(launcher, signal.SIGKILL)
        assert eventually(lambda: not _cmdline(launcher))
        assert execute(sandbox, "echo again").stdout == b"again\n"
        assert run.stream(Recorder()).exit_code == 7
    sandbox.close()


def test_dead_idle_slot_is_not_used(host: Host) -> None:
    sandbox = Sandbox(host)
    known = set(_slots())
    sandbox.prepare(1)
    (slot,) = set(_slots()) - known
    os.kill(slot, signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{slot}").exists())
    assert execute(sandbox, "echo fine").stdout == b"fine\n"
    sandbox.close()


def test_sandbox_with_lost_descriptors_runs_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a worker with too many open files: the kernel drops descriptors that do not fit."""
    receive, marker = slot_process.receive, f"marker-{uuid.uuid4()}"

    def fewer(channel: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
        data, opened = receive(channel, size, most)
        if opened:
            os.close(opened.pop())
        return data, opened

    sandbox = Sandbox(host)
    with monkeypatch.context() as patched:
        patched.setattr(slot_process, "receive", fewer)
        with pytest.raises(SandboxError, match="ulimit"):
            sandbox.start(shell("sleep 1000; : $0", marker), limits())
    assert processes_with(marker) == []
    assert execute(sandbox, "echo again").stdout == b"again\n"
    sandbox.close()


def test_closing_a_sandbox_ends_its_runs(host: Host) -> None:
    sandbox = Sandbox(host)
    marker = f"marker-{uuid.uuid4()}"
    with sandbox.start(shell("sleep 1000; : $0", marker), limits()) as run:
        assert eventually(lambda: bool(processes_with(marker)))
        sandbox.close()
        assert run.stream(Recorder()).reason is ExitReason.KILLED
        try:
            run.stream(Recorder())
            raise AssertionError("a run was streamed twice")
        except SandboxError:
            pass
    assert processes_with(marker) == []


def _slots() -> list[int]:
    """Return the slots of all sandboxes of this process."""
    launchers = [pid for pid in children(os.getpid()) if b"launcher_process" in _cmdline(pid)]
    return [slot for launcher in launchers for slot in children(launcher)]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _shared_memory() -> int:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:"))
    return int(line.split()[1]) * 1024
