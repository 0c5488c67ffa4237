"""Slot: an unprivileged process that starts one run after another in shared namespaces.

Its user, network, UTS, mount and cgroup namespaces and the read-only root are created once; a run adds its own user,
pid, IPC and mount namespaces and its own writable file systems. Between runs the slot takes a new network namespace, so
that no socket, port or address is left for the next run.
It is also the parent for `--die-with-parent`: its run dies with it when the worker exits, or when the kernel kills the
slot at the deadline of the worker's lease (`deadline`).

Loaded by `launcher_process`, which forks one process per slot, hence the standard library only. Each request is a
memory file with JSON plus descriptors; each response is JSON plus descriptors.
"""

import array
import contextlib
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

FIRST_DESCRIPTOR = 300  # descriptor i of a request becomes FIRST_DESCRIPTOR + i in bubblewrap
INFO_DESCRIPTOR = FIRST_DESCRIPTOR - 1
STANDARD_DESCRIPTORS = 4  # the first ones of a request: stdin, stdout, stderr, progress
MAX_DESCRIPTORS = 240  # SCM_RIGHTS carries 253
SETUP_TIMEOUT_SECONDS = 10.0
REAP_TIMEOUT_SECONDS = 5.0
CLEAN_TIMEOUT_SECONDS = 0.2
MIN_BUILD_SECONDS = 0.0015  # no sandbox is built in less time

MFD_EXEC = 0x10


class SharedEnvironment(Protocol):
    """The namespaces and root that the runs of a slot share; implemented by the launcher."""

    bwrap: str

    def open_input(self, name: str) -> int:
        """Open one of the worker's input files on a read-only mount."""

    def block_network(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None:
        """Block these ranges for the next run, which has a network."""

    def is_clean(self) -> bool:
        """Return whether nothing of the last run remains."""

    def renew(self) -> None:
        """Prepare for the next run."""


MakeEnvironment = Callable[[Mapping[str, Mapping[str, str]]], SharedEnvironment]


class Timer(Protocol):
    """Kills this process at the worker's deadline; implemented by `deadline.Timer`."""

    def arm(self) -> None: ...
    def disarm(self) -> None: ...
    def follow(self) -> float | None: ...


class SandboxSetupFailed(Exception):
    """Bubblewrap exited or did not respond before the sandbox was built."""


def launch(
    bwrap: str, request: Mapping[str, object], fds: list[int], shared: SharedEnvironment | None, timer: Timer
) -> tuple[dict[str, object], list[int]]:
    """Build a sandbox whose program waits for its start byte; the first descriptors are its standard ones.

    For a run with a network, the blocked addresses are closed first.
    """
    if request["closed"]:
        try:
            shared.block_network(*request["closed"])  # type: ignore[union-attr,misc]  # only requested of a slot that shares
        except OSError as error:
            return {"error": f"addresses could not be blocked, for which the kernel needs XFRM ({error})"}, []
    deadline = time.monotonic() + SETUP_TIMEOUT_SECONDS
    info_read, info_write = os.pipe2(os.O_CLOEXEC)
    monitor = _spawn(bwrap, request, fds, info_write)
    opened: list[int] = []
    try:
        os.close(info_write)
        child = _read_child_pid(info_read, deadline, timer)
        opened.append(os.pidfd_open(child))
        opened += _wait_until_built(child, opened[0], deadline, timer)
        _apply_rlimits(child, request["rlimits"])  # type: ignore[arg-type]
        namespaces = {name: os.readlink(f"/proc/{child}/ns/{name}") for name in os.listdir(f"/proc/{child}/ns")}
    except (OSError, ValueError, SandboxSetupFailed) as error:
        for descriptor in opened:
            os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.kill(monitor, signal.SIGKILL)
        reap([monitor], timer)
        return {"error": str(error) or type(error).__name__}, []
    finally:
        os.close(info_read)
    return {"child": child, "monitor": monitor, "namespaces": namespaces}, opened


def _copy_bwrap(bwrap: int) -> int:
    """Return a descriptor from which one run executes bubblewrap, if the slot has no copy of its own.

    Pid 1 of a run is bubblewrap, and /proc/1/exe leads to its file on the host, whose mode the owner could change for
    every later run. So a run with the uid of the owner gets an in-memory copy that no other run uses.
    """
    if os.fstat(bwrap).st_uid != os.geteuid():
        return os.dup(bwrap)
    try:
        copy = os.memfd_create("bwrap", os.MFD_CLOEXEC | MFD_EXEC)
    except OSError:  # before Linux 6.3 the flag did not exist and was not needed
        copy = os.memfd_create("bwrap", os.MFD_CLOEXEC)
    try:
        with open(copy, "wb", closefd=False) as file:
            file.write(os.pread(bwrap, os.fstat(bwrap).st_size, 0))
        # reopened: a file that is open for writing cannot be executed
        return os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(copy)


def _spawn(bwrap: str, request: Mapping[str, object], fds: Sequence[int], info: int) -> int:
    moves = [*enumerate(fds[:STANDARD_DESCRIPTORS]), (INFO_DESCRIPTOR, info)]
    moves += [(FIRST_DESCRIPTOR + i, fd) for i, fd in enumerate(fds[STANDARD_DESCRIPTORS:], STANDARD_DESCRIPTORS)]
    return os.posix_spawn(
        bwrap,
        request["argv"],  # type: ignore[arg-type]
        request["environment"],  # type: ignore[arg-type]
        file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for target, source in moves],
        setsigmask=[],
        # Python ignores SIGPIPE and SIGXFSZ, and exec keeps ignored signals ignored
        setsigdef=[s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)],
    )


def _read_child_pid(info: int, deadline: float, timer: Timer) -> int:
    text = b""
    while True:
        if not _wait_readable(info, deadline, timer):
            raise SandboxSetupFailed("bubblewrap did not respond in time")
        part = os.read(info, 4096)
        text += part
        with contextlib.suppress(ValueError):
            return int(json.loads(text)["child-pid"])
        if not part:
            raise SandboxSetupFailed("bubblewrap exited while building the sandbox")


def _wait_until_built(child: int, pidfd: int, deadline: float, timer: Timer) -> list[int]:
    """Return descriptors of the sandbox's /work, /work/out, /proc, /tmp and /dev/shm.

    Nothing announces that its root is complete. Until the first pivot, its root is the slot's; until the second, it has
    no `work`. So a `work` under any other root belongs to the finished sandbox.
    """
    slot_root = os.stat("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    pause = MIN_BUILD_SECONDS
    while True:
        if time.monotonic() > deadline:
            raise SandboxSetupFailed("the sandbox was not built in time")
        timer.follow()
        if select.select([pidfd], [], [], pause)[0]:
            raise SandboxSetupFailed("bubblewrap exited while building the sandbox")
        pause = 0.0002
        root = os.open(f"/proc/{child}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.path.samestat(os.fstat(root), slot_root):
                with contextlib.suppress(FileNotFoundError):
                    names = ("work", "work/out", "proc", "tmp", "dev/shm")
                    return [os.open(name, flags, dir_fd=root) for name in names]
        finally:
            os.close(root)


def _apply_rlimits(child: int, rlimits: Sequence[tuple[int, int]]) -> None:
    for kind, value in rlimits:
        hard = resource.prlimit(child, kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(child, kind, (limit, limit))
    # when memory runs out on the host or in the slot, the kernel should kill the run
    with open(f"/proc/{child}/oom_score_adj", "w") as file:
        file.write("1000")


def reap(pids: Sequence[int], timer: Timer) -> dict[str, object]:
    """Reap an ended run's monitor, and its pid 1 if the monitor exited first.

    The kernel adds the usage of all processes in the pid namespace to its pid 1, so this is the CPU time of the run.
    """
    seconds = 0.0
    statuses = []
    deadline = time.monotonic() + REAP_TIMEOUT_SECONDS
    for pid in pids:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # first, as the pid may belong to another process if it is no longer a child
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            pidfd = os.pidfd_open(pid)
            try:
                if _wait_readable(pidfd, deadline, timer):
                    _, status, usage = os.wait4(pid, os.WNOHANG)
                    statuses.append(os.waitstatus_to_exitcode(status))
                    seconds += usage.ru_utime + usage.ru_stime
            finally:
                os.close(pidfd)
    return {"cpu_seconds": seconds, "monitor_failed": bool(statuses) and statuses[0] == 1}


def _wait_until_clean(shared: SharedEnvironment) -> bool:
    """Wait until the last run's sockets are freed: those in flight are collected after any socket closes."""
    deadline = time.monotonic() + CLEAN_TIMEOUT_SECONDS
    while not shared.is_clean():
        if time.monotonic() > deadline:
            return False
        for end in socket.socketpair():
            end.close()
        time.sleep(0.002)
    return True


def _wait_readable(descriptor: int, deadline: float, timer: Timer) -> bool:
    """Wait until this deadline, adopting lease renewals meanwhile."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        left = max(0.0, deadline - time.monotonic())
        pause = timer.follow()
        if poll.poll((left if pause is None else min(left, pause)) * 1000):
            return True
        if not left:
            return False


def receive(channel: socket.socket, size: int, max_descriptors: int) -> tuple[bytes, list[int]]:
    """Receive descriptors with close-on-exec; socket.recv_fds ignores its flags, and programs would inherit them."""
    fds = array.array("i")
    buffer_size = socket.CMSG_LEN(max_descriptors * fds.itemsize)
    data, ancillary, _, _ = channel.recvmsg(size, buffer_size, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


class SlotServer:
    """Handles the worker's requests."""

    def __init__(self, bwrap: int, share: MakeEnvironment, timer: Timer) -> None:
        self._bwrap = bwrap
        self._share = share
        self._timer = timer
        self._shared: SharedEnvironment | None = None
        self._run: int | None = None  # pidfd of the current run's pid 1

    def answer(self, request: Mapping[str, object], fds: list[int]) -> tuple[dict[str, object], list[int]]:
        if request["do"] == "launch":
            self._timer.arm()
            try:
                answer, opened = self._launch(request, fds)
            except OSError as error:
                answer, opened = {"error": f"bubblewrap could not be started: {error}"}, []
            if opened:
                self._run = os.dup(opened[0])
            else:
                self._timer.disarm()
            return answer, opened
        if request["do"] == "reap":
            self._close_run()
            answer = reap(request["pids"], self._timer)  # type: ignore[arg-type]
            self._timer.disarm()
            return {**answer, "clean": self._shared is None or _wait_until_clean(self._shared)}, []
        if request["do"] == "input":
            return {}, self._open_input(str(request["name"]), fds[0])
        try:
            self._shared = self._share(request["root"])  # type: ignore[arg-type]
        except (OSError, KeyError) as error:
            return {"error": f"a slot could not be set up: {error}"}, []
        return {}, []

    def _launch(self, request: Mapping[str, object], fds: list[int]) -> tuple[dict[str, object], list[int]]:
        if self._shared is not None:
            return launch(self._shared.bwrap, request, fds, self._shared, self._timer)
        copy = _copy_bwrap(self._bwrap)
        try:
            return launch(f"/proc/self/fd/{copy}", request, fds, None, self._timer)
        finally:
            os.close(copy)

    def _open_input(self, name: str, known: int) -> list[int]:
        """Open the file behind the worker's descriptor; return nothing if its name now leads elsewhere."""
        try:
            opened = self._shared.open_input(os.path.basename(name)) if self._shared is not None else -1
        except OSError:
            return []
        if opened < 0:
            return []
        if os.path.samestat(os.fstat(opened), os.fstat(known)):
            return [opened]
        os.close(opened)
        return []

    def renew(self) -> None:
        if self._shared is not None:
            self._shared.renew()

    def end(self) -> None:
        """Kill the run before exiting: a sandbox whose program has not started does not yet die with its parent."""
        if self._run is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._run, signal.SIGKILL)

    def _close_run(self) -> None:
        if self._run is not None:
            os.close(self._run)
            self._run = None


def refuse(channel: socket.socket, why: str) -> None:
    """Answer every request with this error until the worker closes the channel."""
    while True:
        data, fds = receive(channel, 16, MAX_DESCRIPTORS + 1)
        for descriptor in fds:
            os.close(descriptor)
        if not data:
            return
        channel.send(json.dumps({"error": why}).encode())


def serve(channel: socket.socket, worker: int, bwrap: int, share: MakeEnvironment, timer: Timer) -> None:
    """Serve requests until the worker closes the channel or exits."""
    slot = SlotServer(bwrap, share, timer)
    try:
        _serve(channel, worker, slot, timer)
    finally:
        slot.end()


def _serve(channel: socket.socket, worker: int, slot: SlotServer, timer: Timer) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(worker, select.POLLIN)
    while True:
        seconds = timer.follow()
        ready = [descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000)]
        if worker in ready:
            return
        if not ready:
            continue
        data, fds = receive(channel, 16, MAX_DESCRIPTORS + 1)
        if not data:
            return
        try:
            request = json.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
            answer, opened = slot.answer(request, fds[1:])
        finally:
            for descriptor in fds:
                os.close(descriptor)
        socket.send_fds(channel, [json.dumps(answer).encode()], opened)
        for descriptor in opened:
            os.close(descriptor)
        if request["do"] == "reap":
            slot.renew()
