"""Nothing of a run stays behind: no descriptor, process, cgroup or memory, not even if its worker is killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from tests.integration.sandbox.driving import (
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
from tests.waiting import eventually
from workers.sandbox import EndReason, Host, Program, Sandbox, SandboxError, clean_leftovers, slot_process

WORKER = """
import sys
from tests.integration.sandbox.driving import Recorder, limits, shell
from workers.sandbox import Sandbox, detect_host
sandbox = Sandbox(detect_host())
with sandbox.start(shell("setsid sleep 1000 & echo ready; sleep 1000; : $0", sys.argv[1]), limits()) as run:
    run.stream(lambda stream, data: print("ready", flush=True))
"""


def test_fifty_runs_leave_nothing(sandbox: Sandbox) -> None:
    execute(sandbox, "true")
    slots = _slots()
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


def test_the_files_of_a_run_leave_memory_with_it(host: Host) -> None:
    sandbox = Sandbox(host)
    before = _shared_memory()
    within = limits(disk=320 * MEBIBYTE, memory=256 * MEBIBYTE)
    with sandbox.start(shell("head -c 300000000 /dev/zero > out/big"), within) as run:
        assert run.stream(Recorder()).exit_code == 0
        assert os.stat("big", dir_fd=run.output_directory).st_size == 300_000_000
        assert _shared_memory() > before + 200 * MEBIBYTE
    assert eventually(lambda: _shared_memory() < before + 150 * MEBIBYTE)
    sandbox.close()


def test_a_killed_worker_takes_its_runs_along_and_its_successor_cleans_up(host: Host) -> None:
    marker = f"marker-{uuid.uuid4()}"
    with subprocess.Popen([sys.executable, "-c", WORKER, marker], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        inside = [pid for pid in processes_with(marker) if pid != worker.pid]
        assert inside
        # a living worker's cgroups are nobody else's business
        before = slot_cgroups(worker.pid)
        assert bool(before) == (host.cgroup_mode != "none")
        clean_leftovers()
        assert slot_cgroups(worker.pid) == before
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
    assert eventually(lambda: processes_with(marker) == [])
    clean_leftovers()
    assert slot_cgroups(worker.pid) == []


def test_a_lost_slot_ends_its_run_and_is_replaced(host: Host) -> None:
    sandbox = Sandbox(host)
    known, cgroups = set(_slots()), slot_cgroups(os.getpid())
    with sandbox.start(shell("echo ready; sleep 1000"), limits()) as run:
        (slot,) = set(_slots()) - known
        outcome = run.stream(Recorder(lambda _: os.kill(slot, signal.SIGKILL)))
    assert outcome.reason is EndReason.KILLED, "not the program's doing"
    assert execute(sandbox, "echo again").stdout == b"again\n"
    sandbox.close()
    assert slot_cgroups(os.getpid()) == cgroups


def test_what_fell_with_a_slot_is_known_also_when_the_next_one_is_there(host: Host) -> None:
    sandbox = Sandbox(host)
    known = set(_slots())
    with sandbox.start(shell("sleep 1000"), limits()) as run:
        (slot,) = set(_slots()) - known
        os.kill(slot, signal.SIGKILL)
        assert eventually(lambda: not _cmdline(slot))
        assert execute(sandbox, "echo again").stdout == b"again\n"
        assert run.stream(Recorder()).reason is EndReason.KILLED, "not the program's doing"
    sandbox.close()


def test_a_lost_launcher_harms_no_run_and_is_replaced(host: Host) -> None:
    sandbox = Sandbox(host)
    known = set(children(os.getpid()))
    with sandbox.start(shell("echo ready; read line; exit 7"), limits()) as run:
        (launcher,) = set(children(os.getpid())) - known
        os.kill(launcher, signal.SIGKILL)
        assert eventually(lambda: not _cmdline(launcher))
        assert execute(sandbox, "echo again").stdout == b"again\n"
        assert run.stream(Recorder()).exit_code == 7
    sandbox.close()


def test_an_idle_slot_that_died_is_not_used(host: Host) -> None:
    sandbox = Sandbox(host)
    known = set(_slots())
    sandbox.prepare(1)
    (slot,) = set(_slots()) - known
    os.kill(slot, signal.SIGKILL)
    assert eventually(lambda: not Path(f"/proc/{slot}").exists())
    assert execute(sandbox, "echo fine").stdout == b"fine\n"
    sandbox.close()


def test_a_sandbox_whose_descriptors_get_lost_runs_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the worker has too many files open: the kernel delivers what fits."""
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
        assert run.stream(Recorder()).reason is EndReason.KILLED
        try:
            run.stream(Recorder())
            raise AssertionError("a run was streamed twice")
        except SandboxError:
            pass
    assert processes_with(marker) == []


def _slots() -> list[int]:
    """The slots of all sandboxes of this process."""
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
