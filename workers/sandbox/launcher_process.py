"""The unprivileged process that starts bubblewrap for a worker and limits it from outside.

It exists because only a process of the same uid may always do so: a root worker in a container often
lacks CAP_SYS_RESOURCE and CAP_SYS_PTRACE, without which prlimit(2) on, and /proc/<pid>/root of, another
user's process are refused. It starts as the worker, then drops to `uid` for good. It is also the parent
that `--die-with-parent` looks at: it leaves when its worker does, and takes every sandbox with it.

Run as a script (`python -I -S`), hence the standard library only. Each request is a memfd with JSON plus
descriptors; each answer is JSON plus descriptors.
"""

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence

FIRST_DESCRIPTOR = 300  # descriptor i of a request is FIRST_DESCRIPTOR + i for bubblewrap
INFO_DESCRIPTOR = FIRST_DESCRIPTOR - 1
MOST_DESCRIPTORS = 240  # SCM_RIGHTS carries 253
SETUP_SECONDS = 10.0
REAP_SECONDS = 5.0
PR_SET_CHILD_SUBREAPER = 36


class SetupError(Exception):
    """Bubblewrap ended, or did not answer, before the sandbox stood."""


def launch(bwrap: int, request: dict[str, object], fds: list[int]) -> tuple[dict[str, object], list[int]]:
    """Build a sandbox that waits to be let go; the first two descriptors are its stdout and stderr."""
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


def _spawn(bwrap: int, request: dict[str, object], fds: Sequence[int], info: int) -> int:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    moves = [(null, 0), (fds[0], 1), (fds[1], 2), (info, INFO_DESCRIPTOR)]
    moves += [(fd, FIRST_DESCRIPTOR + index) for index, fd in enumerate(fds[2:], start=2)]
    try:
        return os.posix_spawn(
            f"/proc/self/fd/{bwrap}",  # its path may lead through a directory that is closed to this uid
            request["argv"],  # type: ignore[arg-type]
            request["environment"],  # type: ignore[arg-type]
            file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in moves],
            setsigmask=[],
            # Python ignores SIGPIPE and SIGXFSZ, and what is ignored stays so across exec
            setsigdef=[s for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)],
        )
    finally:
        os.close(null)


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
    """Return descriptors of the sandbox's /work, /work/out and /proc.

    Nothing announces that its root is in place. Until the first pivot it is the host's, and until the
    second it has no `work`: a `work` under a root that is not the host's can only be the sandbox's.
    """
    host_root = os.stat("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        if time.monotonic() > deadline:
            raise SetupError("the sandbox was not built in time")
        if select.select([pidfd], [], [], 0.0002)[0]:
            raise SetupError("bubblewrap ended while building the sandbox")
        root = os.open(f"/proc/{child}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.path.samestat(os.fstat(root), host_root):
                with contextlib.suppress(FileNotFoundError):
                    work = os.open("work", flags, dir_fd=root)
                    return [work, os.open("out", flags, dir_fd=work), os.open("proc", flags, dir_fd=root)]
        finally:
            os.close(root)


def _limit(child: int, rlimits: Sequence[tuple[int, int]]) -> None:
    for kind, value in rlimits:
        hard = resource.prlimit(child, kind)[1]
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(child, kind, (limit, limit))
    # if the host runs out of memory, the kernel should take a job, not the worker or a database
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
            pidfd = os.pidfd_open(pid)
            try:
                if _readable(pidfd, deadline):
                    _, status, usage = os.wait4(pid, os.WNOHANG)
                    statuses.append(os.waitstatus_to_exitcode(status))
                    seconds += usage.ru_utime + usage.ru_stime
            finally:
                os.close(pidfd)
    return {"cpu_seconds": seconds, "monitor_failed": bool(statuses) and statuses[0] == 1}


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


def _serve(channel: socket.socket, bwrap: int, worker: int, refusal: str) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(worker, select.POLLIN)
    while True:
        if any(descriptor == worker for descriptor, _ in poll.poll()):
            return
        data, fds = receive(channel, 16, MOST_DESCRIPTORS + 1)
        if not data:
            return
        try:
            request = json.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
            answer: dict[str, object] = {"error": refusal}
            opened: list[int] = []
            if request["do"] == "launch" and not refusal:
                try:
                    answer, opened = launch(bwrap, request, fds[1:])
                except OSError as error:
                    answer = {"error": f"bubblewrap could not be started: {error}"}
            elif request["do"] == "reap":
                answer = reap(request["pids"])
        finally:
            for descriptor in fds:
                os.close(descriptor)
        socket.send_fds(channel, [json.dumps(answer).encode()], opened)
        for descriptor in opened:
            os.close(descriptor)


def main(arguments: Sequence[str]) -> int:
    channel_fd, parent, bwrap, uid, gid = map(int, arguments)
    channel = socket.socket(fileno=channel_fd)
    channel.set_inheritable(False)
    os.set_inheritable(bwrap, False)
    try:
        worker = os.pidfd_open(parent)
    except ProcessLookupError:
        return 0
    os.chdir("/")
    os.umask(0o022)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # a monitor that leaves before its pid 1 would else leave a zombie to whatever is pid 1 of a container
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    refusal = ""
    if uid >= 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        except OSError as error:
            refusal = f"the worker is root and may not become uid {uid} ({error})"
    with contextlib.suppress(ConnectionError):
        _serve(channel, bwrap, worker, refusal)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
