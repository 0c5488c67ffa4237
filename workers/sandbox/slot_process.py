"""A slot: the unprivileged process that owns what runs can share, and starts one run after another in it.

Its user, network, host name, mount and cgroup namespaces, and the system's read-only root, are made once; a run
adds its own user, process, message and mount namespaces and its own writable places. Between two runs the slot
takes a new network namespace, so that no socket, port or address of one is left for the next.
It is also the parent that `--die-with-parent` looks at: it leaves when its worker does, and takes its run with it.

Loaded by `launcher_process`, which forks one for each slot, hence the standard library only. Each request is a
memory file with JSON plus descriptors; each answer is JSON plus descriptors.
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

FIRST_DESCRIPTOR = 300  # descriptor i of a request is FIRST_DESCRIPTOR + i for bubblewrap
INFO_DESCRIPTOR = FIRST_DESCRIPTOR - 1
STANDARD_DESCRIPTORS = 4  # the first of a request: stdin, stdout, stderr, progress
MOST_DESCRIPTORS = 240  # SCM_RIGHTS carries 253
SETUP_SECONDS = 10.0
REAP_SECONDS = 5.0
CLEAN_SECONDS = 0.2
BUILDING_SECONDS = 0.0015  # no sandbox stands earlier, so that looking is a waste

MFD_EXEC = 0x10


class Shared(Protocol):
    """What the runs of a slot share; the launcher puts it together."""

    bwrap: str

    def close_network(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None:
        """The next run is to have a way out, and must not reach these."""

    def is_clean(self) -> bool:
        """Whether nothing of the run that is over is left in it."""

    def renew(self) -> None:
        """Before the next run."""


Share = Callable[[Mapping[str, Mapping[str, str]]], Shared]


class SetupError(Exception):
    """Bubblewrap ended, or did not answer, before the sandbox stood."""


def launch(
    bwrap: str, request: Mapping[str, object], fds: list[int], shared: Shared | None
) -> tuple[dict[str, object], list[int]]:
    """Build a sandbox that waits to be let go; the first descriptors are its standard ones.

    For a run that is to have a network, what it must not reach is closed before it stands.
    """
    if request["closed"]:
        try:
            shared.close_network(*request["closed"])  # type: ignore[union-attr,misc]  # only a slot that shares is asked for it
        except OSError as error:
            return {"error": f"addresses could not be blocked, for which the kernel needs XFRM ({error})"}, []
    deadline = time.monotonic() + SETUP_SECONDS
    info_read, info_write = os.pipe2(os.O_CLOEXEC)
    monitor = _spawn(bwrap, request, fds, info_write)
    opened: list[int] = []
    try:
        os.close(info_write)
        child = _read_child_pid(info_read, deadline)
        opened.append(os.pidfd_open(child))
        opened += _wait_until_built(child, opened[0], deadline)
        _limit(child, request["rlimits"])  # type: ignore[arg-type]
        namespaces = {name: os.readlink(f"/proc/{child}/ns/{name}") for name in os.listdir(f"/proc/{child}/ns")}
        if request["closed"]:
            opened += [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net")]
    except (OSError, ValueError, SetupError) as error:
        for descriptor in opened:
            os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.kill(monitor, signal.SIGKILL)
        reap([monitor])
        return {"error": str(error) or type(error).__name__}, []
    finally:
        os.close(info_read)
    return {"child": child, "monitor": monitor, "namespaces": namespaces}, opened


def _own_copy(bwrap: int) -> int:
    """Return a descriptor by which one run may execute bubblewrap where the slot has no copy; it is the caller's.

    Pid 1 of a run is bubblewrap, and /proc/1/exe leads to its file on the host: its owner could change the mode from
    inside, for every later run. So whoever owns the file gets a copy in memory, and no other run gets the same.
    """
    if os.fstat(bwrap).st_uid != os.geteuid():
        return os.dup(bwrap)
    try:
        copy = os.memfd_create("bwrap", os.MFD_CLOEXEC | MFD_EXEC)
    except OSError:  # before Linux 6.3 there was no such flag, and no need of it
        copy = os.memfd_create("bwrap", os.MFD_CLOEXEC)
    try:
        with open(copy, "wb", closefd=False) as file:
            file.write(os.pread(bwrap, os.fstat(bwrap).st_size, 0))
        return os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)  # what can be written cannot be executed
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
        # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so across exec
        setsigdef=[s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)],
    )


def _read_child_pid(info: int, deadline: float) -> int:
    text = b""
    while True:
        if not _readable(info, deadline):
            raise SetupError("bubblewrap did not answer in time")
        part = os.read(info, 4096)
        text += part
        with contextlib.suppress(ValueError):
            return int(json.loads(text)["child-pid"])
        if not part:
            raise SetupError("bubblewrap ended while building the sandbox")


def _wait_until_built(child: int, pidfd: int, deadline: float) -> list[int]:
    """Return descriptors of the sandbox's /work, /work/out, /proc, /tmp and /dev/shm.

    Nothing announces that its root is in place. Until the first pivot it is the slot's, and until the
    second it has no `work`: a `work` under a root that is not the slot's can only be the sandbox's.
    """
    slot_root = os.stat("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    pause = BUILDING_SECONDS
    while True:
        if time.monotonic() > deadline:
            raise SetupError("the sandbox was not built in time")
        if select.select([pidfd], [], [], pause)[0]:
            raise SetupError("bubblewrap ended while building the sandbox")
        pause = 0.0002
        root = os.open(f"/proc/{child}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.path.samestat(os.fstat(root), slot_root):
                with contextlib.suppress(FileNotFoundError):
                    names = ("work", "work/out", "proc", "tmp", "dev/shm")
                    return [os.open(name, flags, dir_fd=root) for name in names]
        finally:
            os.close(root)


def _limit(child: int, rlimits: Sequence[tuple[int, int]]) -> None:
    for kind, value in rlimits:
        hard = resource.prlimit(child, kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(child, kind, (limit, limit))
    # if memory runs out, of the host or of the slot, the kernel should take the run
    with open(f"/proc/{child}/oom_score_adj", "w") as file:
        file.write("1000")


def reap(pids: Sequence[int]) -> dict[str, object]:
    """Collect a finished run's monitor, then its pid 1 where the monitor left first.

    The kernel adds what died inside the pid namespace to its pid 1, so their CPU time is the whole run's.
    """
    seconds = 0.0
    statuses = []
    deadline = time.monotonic() + REAP_SECONDS
    for pid in pids:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            # first of all: a number that is no longer a child's is somebody else's
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            pidfd = os.pidfd_open(pid)
            try:
                if _readable(pidfd, deadline):
                    _, status, usage = os.wait4(pid, os.WNOHANG)
                    statuses.append(os.waitstatus_to_exitcode(status))
                    seconds += usage.ru_utime + usage.ru_stime
            finally:
                os.close(pidfd)
    return {"cpu_seconds": seconds, "monitor_failed": bool(statuses) and statuses[0] == 1}


def _is_clean(shared: Shared) -> bool:
    """Sockets on their way through each other are freed when any socket is closed, a moment later."""
    deadline = time.monotonic() + CLEAN_SECONDS
    while not shared.is_clean():
        if time.monotonic() > deadline:
            return False
        for end in socket.socketpair():
            end.close()
        time.sleep(0.002)
    return True


def _readable(descriptor: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def receive(channel: socket.socket, size: int, most_descriptors: int) -> tuple[bytes, list[int]]:
    """As socket.recv_fds, which ignores its flags: descriptors must not be inherited by a program."""
    fds = array.array("i")
    room = socket.CMSG_LEN(most_descriptors * fds.itemsize)
    data, ancillary, _, _ = channel.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


class Slot:
    """The answers to a worker's requests."""

    def __init__(self, bwrap: int, share: Share) -> None:
        self._bwrap = bwrap
        self._share = share
        self._shared: Shared | None = None
        self._held: list[int] = []

    def answer(self, request: Mapping[str, object], fds: list[int]) -> tuple[dict[str, object], list[int]]:
        """The first descriptor of a launch is the worker's end of the pipe that the run waits at."""
        if request["do"] == "launch":
            try:
                answer, opened = self._launch(request, fds[1:])
            except OSError as error:
                return {"error": f"bubblewrap could not be started: {error}"}, []
            if opened:
                # should the worker end before it lets the run go, its end of the pipe must not do so
                self._held = [os.dup(opened[0]), os.dup(fds[0])]
            return answer, opened
        if request["do"] == "reap":
            self._let_go()
            answer = reap(request["pids"])  # type: ignore[arg-type]
            return {**answer, "clean": self._shared is None or _is_clean(self._shared)}, []
        try:
            self._shared = self._share(request["root"])  # type: ignore[arg-type]
        except (OSError, KeyError) as error:
            return {"error": f"a slot could not be set up: {error}"}, []
        return {}, []

    def _launch(self, request: Mapping[str, object], fds: list[int]) -> tuple[dict[str, object], list[int]]:
        if self._shared is not None:
            return launch(self._shared.bwrap, request, fds, self._shared)
        copy = _own_copy(self._bwrap)
        try:
            return launch(f"/proc/self/fd/{copy}", request, fds, None)
        finally:
            os.close(copy)

    def renew(self) -> None:
        if self._shared is not None:
            self._shared.renew()

    def end(self) -> None:
        """Before this process leaves: the pipe that a run may still wait at is closed only after the run is dead."""
        for pidfd in self._held[:1]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            _readable(pidfd, time.monotonic() + REAP_SECONDS)

    def _let_go(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)
        self._held = []


def serve(channel: socket.socket, worker: int, bwrap: int, share: Share) -> None:
    """Answer until the worker closes the channel or ends."""
    slot = Slot(bwrap, share)
    try:
        _serve(channel, worker, slot)
    finally:
        slot.end()


def _serve(channel: socket.socket, worker: int, slot: Slot) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(worker, select.POLLIN)
    while True:
        if any(descriptor == worker for descriptor, _ in poll.poll()):
            return
        data, fds = receive(channel, 16, MOST_DESCRIPTORS + 2)
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
