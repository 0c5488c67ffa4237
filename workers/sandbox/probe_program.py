"""Tries system calls that must not work in a sandbox; a line for each probe: its name, then `held` or what was seen.

Run inside, by whatever Python there is (3.8 or newer): hence the standard library only, and nothing of this project.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from typing import Any

REFUSALS = (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.ENOSPC, errno.EAFNOSUPPORT)  # ENOSPC: no more namespaces
NEW_USER = 0x10000000
NEW_NAMESPACES = 0x00020000
TRACE_ME = 0
OWN_KEYRING = (0, -3, 1)  # the session's
VSOCK, PACKET, NETFILTER = 40, 17, 12
MORE = 16

libc = ctypes.CDLL(None, use_errno=True)

Known = Any  # what the worker told, as JSON


def refused(call: Callable[..., int], *arguments: object) -> str:
    """What was seen, or nothing if the kernel said no."""
    ctypes.set_errno(0)
    answer = call(*arguments)
    problem = ctypes.get_errno()
    if answer == -1 and problem in REFUSALS:
        return ""
    return f"it answered {answer} ({errno.errorcode.get(problem, problem)})"


def system_call(known: Known, name: str, *arguments: int) -> str:
    number = known["calls"].get(name, -1)
    if number < 0:
        return ""  # this machine has no such call
    return refused(libc.syscall, number, *(ctypes.c_long(argument) for argument in arguments))


def attempt(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return "" if error.errno in REFUSALS else f"it failed otherwise ({error})"
    return "it worked"


def clone_new_user(known: Known) -> str:
    number = known["calls"]["clone"]
    ctypes.set_errno(0)
    answer = libc.syscall(number, ctypes.c_long(NEW_USER | signal.SIGCHLD), None, None, None, None)
    if answer == 0:
        os._exit(0)
    if answer > 0:
        os.waitpid(answer, 0)
        return "it made a user namespace"
    return "" if ctypes.get_errno() in REFUSALS else f"it failed otherwise ({ctypes.get_errno()})"


def traced() -> str:
    """In a child: a process that is traced stops at every signal."""
    child = os.fork()
    if child == 0:
        os._exit(1 if refused(libc.ptrace, TRACE_ME, 0, 0, 0) else 0)
    return "a process can be traced" if os.waitpid(child, 0)[1] else ""


def odd_sockets() -> str:
    families = {"vsock": (VSOCK, socket.SOCK_STREAM, 0), "packet": (PACKET, socket.SOCK_RAW, 0)}
    families["netfilter"] = (socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER)
    made = [name for name, (family, kind, protocol) in families.items() if makes_socket(family, kind, protocol)]
    return f"it made sockets: {' '.join(made)}" if made else ""


def makes_socket(family: int, kind: int, protocol: int) -> bool:
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return False
    return True


def set_ids() -> str:
    """By each way there is: the mode of what is there, of a new file, of a nameless one, of a node."""
    ways = {
        "chmod": lambda: os.chmod(".", 0o2700),
        "open": lambda: os.close(os.open("b", os.O_CREAT | os.O_WRONLY, 0o4700)),
        "nameless": lambda: os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4700)),
        "mknod": lambda: os.mknod("c", stat.S_IFREG | 0o2700),
    }
    worked = [name for name, way in ways.items() if attempt(way)]
    return f"set by {' '.join(worked)}" if worked else ""


def devices() -> str:
    return attempt(lambda: os.mknod("device", stat.S_IFBLK | 0o600, os.makedev(8, 0)))


def connected(known: Known) -> str:
    """To the worker's own loopback, by either way that leads there."""
    reached = []
    for name, family, address in (
        ("127.0.0.1", socket.AF_INET, ("127.0.0.1", known["port"])),
        ("an abstract socket", socket.AF_UNIX, "\0" + known["abstract"]),
    ):
        with socket.socket(family, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            if client.connect_ex(address) == 0:
                reached.append(name)
    return f"it reached the worker by {' and '.join(reached)}" if reached else ""


def forked(known: Known) -> str:
    children = []
    try:
        for _ in range(known["processes"] + MORE):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        return ""
    else:
        return f"it started {len(children)} processes"
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def main(text: str) -> None:
    known = json.loads(text)
    probes: dict[str, Callable[[], str]] = {
        "mounting": lambda: (
            refused(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
            or system_call(known, "fsopen", 0, 0)
            or system_call(known, "open_tree", -100, 0, 0)
        ),
        "namespaces": lambda: (
            refused(libc.unshare, NEW_USER)
            or refused(libc.unshare, NEW_NAMESPACES)
            or system_call(known, "clone3", 0, 0)
            or clone_new_user(known)
        ),
        "tracing": lambda: traced() or system_call(known, "process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
        "keyrings": lambda: system_call(known, "keyctl", *OWN_KEYRING) or system_call(known, "add_key", 0, 0, 0, 0, -3),
        "kernel-interfaces": lambda: (
            system_call(known, "io_uring_setup", 1, 0)
            or system_call(known, "bpf", 0, 0, 0)
            or system_call(known, "perf_event_open", 0, 0, -1, -1, 0)
            or system_call(known, "userfaultfd", 1)
            or system_call(known, "open_by_handle_at", -100, 0, 0)
        ),
        "odd-sockets": odd_sockets,
        "set-id-bits": set_ids,
        "device-nodes": devices,
        "network": lambda: connected(known),
        "processes": lambda: forked(known),
    }
    for name, probe in probes.items():
        print(name, probe() or "held", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
