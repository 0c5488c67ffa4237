"""Reuse of slots: no memory, terminals or sockets remain between runs or after the worker."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.driving import MEBIBYTE, PATH, execute, limits, shell
from workers.sandbox.cgroups.lifecycle import CgroupParents, _is_owner_alive, _kill_processes
from workers.sandbox.host import Host, detect_host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, Program

PYTHON = "/usr/bin/python3"
SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(8):
    address = libc.shmat(libc.shmget(0, 32 << 20, 0o1600), None, 0)
    ctypes.memset(address, 1, 32 << 20)
    libc.shmdt(ctypes.c_void_p(address))
"""
IN_FLIGHT = """
import os, socket
one, other = socket.socketpair()
files = [os.memfd_create("x") for _ in range(4)]
for file in files:
    os.write(file, bytes(60 << 20))
socket.send_fds(one, [b"x"], [*files, one.fileno(), other.fileno()])
"""
TERMINAL_IN_FLIGHT = """
import os, socket
leader, follower = os.openpty()
os.write(leader, b"a secret")
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [leader, follower, one.fileno(), other.fileno()])
"""
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, os, threading, time
def eat():
    held = []
    for _ in range(16):
        held.append(bytearray(os.urandom(1) * (32 << 20)))
        time.sleep(0.1)
    os._exit(0)
threading.Thread(target=eat).start()
ctypes.CDLL(None).pthread_exit(None)
"""
FORKING = """
import os, sys
from tests.support.driving import execute
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
sandbox = Sandbox(detect_host())
sandbox.prepare(2)
child = os.fork()
if child == 0:
    if sys.argv[1] == "start":
        assert execute(sandbox, "echo child").stdout == b"child\\n"
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert [pooled.slot.alive for pooled in sandbox._slots._idle] == [True, True]
assert execute(sandbox, "echo parent").stdout == b"parent\\n"
"""
KILLED_BEFORE_RELEASE = """
import os, signal, socket, sys
from tests.support.driving import limits, shell
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
def before(run):
    socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"x"], [run._pipes.stdout, run.pidfd])
    os.kill(os.getpid(), signal.SIGKILL)
Sandbox(detect_host()).start(shell("while :; do echo ran; done"), limits(), before)
"""
UNDER_A_QUOTA = """
import dataclasses, os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from tests.support.driving import execute, limits, shell
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
host = detect_host()
assert host.cgroup_mode == "v1"
sandbox = Sandbox(host)
assert execute(sandbox, "echo fine").stdout == b"fine\\n"
with sandbox.start(shell("sleep 60"), dataclasses.replace(limits(), cpus=0.1)):
    (pooled,) = sandbox._slots._busy
    quotas = [path / "cpu.cfs_quota_us" for path in pooled.cgroup.directories()]
    assert [path.read_text() for path in quotas if path.exists()] == ["10000\\n"], "less than it has is held to"
sandbox.close()
open(os.path.dirname(sys.argv[1]) + "/cgroup.procs", "w").write(str(os.getpid()))
"""


@pytest.fixture
def one(host: Host) -> Iterator[Sandbox]:
    sandbox = Sandbox(host)
    sandbox.prepare(1)
    yield sandbox
    sandbox.close()


def program(code: str) -> Program:
    return Program((PYTHON, "-I", "-S", "-c", code), PATH)


def script(code: str, *arguments: object, descriptors: tuple[int, ...] = ()) -> int:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], pass_fds=descriptors, timeout=60, check=False
    ).returncode


if detect_host().memory_is_metered:

    @pytest.mark.parametrize("code", [SEGMENTS, IN_FLIGHT], ids=["segments", "in flight"])
    def test_memory_that_outlives_a_run_is_not_the_next_ones(one: Sandbox, code: str) -> None:
        within = limits(memory=400 * MEBIBYTE, disk=64 * MEBIBYTE)
        before = execute(one, program(code), within).outcome
        assert (before.reason, before.exit_code) == (ExitReason.EXIT, 0)
        assert before.peak_memory_bytes is not None
        assert before.peak_memory_bytes > 200 * MEBIBYTE
        after = execute(one, program("x = bytearray(b'x' * (60 << 20))"), within).outcome
        assert after.peak_memory_bytes is not None
        assert 60 * MEBIBYTE < after.peak_memory_bytes < 200 * MEBIBYTE
        execute(one, program(code), within)
        assert execute(one, "echo fine", limits(memory=32 * MEBIBYTE)).stdout == b"fine\n"


def test_terminals_work_and_are_not_shared(one: Sandbox) -> None:
    many = "import os\nfor n in range(300):\n    try: os.openpty()\n    except OSError: break\nprint(n)"
    assert int(execute(one, program(many)).stdout) <= 256
    assert execute(one, "chmod 0 /dev/pts/ptmx; chmod 0 /dev/pts").outcome.exit_code != 0
    assert execute(one, program(TERMINAL_IN_FLIGHT)).outcome.exit_code == 0
    assert execute(one, "ls /dev/pts; cat /dev/pts/[0-9]*").stdout == b"ptmx\n"
    assert int(execute(one, program(many)).stdout) > 100


def test_process_without_main_thread_is_metered(host: Host) -> None:
    sandbox = Sandbox(dataclasses.replace(host, cgroups=CgroupParents()))
    result = execute(sandbox, program(WITHOUT_ITS_FIRST_THREAD), limits(memory=64 * MEBIBYTE))
    sandbox.close()
    assert result.outcome.reason is ExitReason.OUT_OF_MEMORY


@pytest.mark.parametrize("what", ["leave", "start"])
def test_forked_process_does_not_end_its_parents_slots(what: str) -> None:
    assert script(FORKING, what) == 0


def test_worker_that_dies_before_release_starts_no_program() -> None:
    for _ in range(3):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            assert script(KILLED_BEFORE_RELEASE, theirs.fileno(), descriptors=(theirs.fileno(),)) == -signal.SIGKILL
            _, (stdout, pidfd), _, _ = socket.recv_fds(ours, 10, 2)
        with open(stdout, "rb") as file, open(pidfd, "rb", buffering=0):
            os.set_blocking(stdout, True)
            assert file.read() == b"", "the program wrote nothing else"


def test_process_of_another_namespace_is_not_signalled(tmp_path: Path) -> None:
    """The kernel lists it as pid 0, which as a signal target means the own process group."""
    (tmp_path / "cgroup.procs").write_text("0\n")
    child = os.fork()
    if child == 0:
        os.setsid()
        _kill_processes(tmp_path)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ours = os.stat("/proc/self/ns/pid").st_ino
    assert _is_owner_alive(f"punctual-slot-1-1-{ours + 1}-1"), "owners in other namespaces count as alive"
    assert not _is_owner_alive(f"punctual-slot-1-1-{ours}-1")


CPU = Path("/sys/fs/cgroup/cpu")
if os.geteuid() == 0 and (CPU / "cpu.cfs_quota_us").exists():

    def test_a_worker_that_has_less_than_a_job_asks_for_runs_it_all_the_same() -> None:
        group = CPU / f"punctual-test-{os.getpid()}"
        group.mkdir()
        try:
            (group / "cpu.cfs_quota_us").write_text("50000")
            assert script(UNDER_A_QUOTA, group) == 0
        finally:
            group.rmdir()


def test_next_run_has_its_full_cpu_quota(one: Sandbox) -> None:
    """A killed run must not exit slowly on its quota, nor leave the slot throttled."""
    small = dataclasses.replace(limits(wall_seconds=0.5), cpus=0.05)
    assert execute(one, shell("while :; do :; done & while :; do :; done"), small).outcome.reason is ExitReason.TIMEOUT
    assert execute(one, "echo fine", limits(wall_seconds=5)).stdout == b"fine\n"
