"""Probes that try forbidden system calls; prints a line for each: its name, then `held` or the finding.

Run inside a sandbox by any Python from 3.8 on, hence the standard library only, and nothing of this project.
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
CLONE_NEWUSER = 0x10000000
CLONE_NEWNS = 0x00020000
TRACE_ME = 0
OWN_KEYRING = (0, -3, 1)  # the session's
VSOCK, PACKET, NETFILTER = 40, 17, 12
EXTRA_PROCESSES = 16

libc = ctypes.CDLL(None, use_errno=True)

ProbeInput = Any  # JSON from the worker


def try_call(call: Callable[..., int], *arguments: object) -> str:
    """Return a finding, or "" if the kernel refused the call."""
    ctypes.set_errno(0)
    answer = call(*arguments)
    problem = ctypes.get_errno()
    if answer == -1 and problem in REFUSALS:
        return ""
    return f"it answered {answer} ({errno.errorcode.get(problem, problem)})"


def try_system_call(known: ProbeInput, name: str, *arguments: int) -> str:
    number = known["calls"].get(name, -1)
    if number < 0:
        return ""  # this machine lacks the call
    return try_call(libc.syscall, number, *(ctypes.c_long(argument) for argument in arguments))


def try_action(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return "" if error.errno in REFUSALS else f"it failed otherwise ({error})"
    return "it worked"


def try_user_namespace(known: ProbeInput) -> str:
    number = known["calls"]["clone"]
    ctypes.set_errno(0)
    answer = libc.syscall(number, ctypes.c_long(CLONE_NEWUSER | signal.SIGCHLD), None, None, None, None)
    if answer == 0:
        os._exit(0)
    if answer > 0:
        os.waitpid(answer, 0)
        return "it made a user namespace"
    return "" if ctypes.get_errno() in REFUSALS else f"it failed otherwise ({ctypes.get_errno()})"


def try_tracing() -> str:
    """Try in a child, as a traced process stops at every signal."""
    child = os.fork()
    if child == 0:
        os._exit(1 if try_call(libc.ptrace, TRACE_ME, 0, 0, 0) else 0)
    return "a process can be traced" if os.waitpid(child, 0)[1] else ""


def try_odd_sockets() -> str:
    families = {"vsock": (VSOCK, socket.SOCK_STREAM, 0), "packet": (PACKET, socket.SOCK_RAW, 0)}
    families["netfilter"] = (socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER)
    made = [name for name, (family, kind, protocol) in families.items() if can_open_socket(family, kind, protocol)]
    return f"it made sockets: {' '.join(made)}" if made else ""


def can_open_socket(family: int, kind: int, protocol: int) -> bool:
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return False
    return True


def try_set_id_bits() -> str:
    """Try each way: on an existing file, a new one, an unnamed one and a node."""
    ways = {
        "chmod": lambda: os.chmod(".", 0o2700),
        "open": lambda: os.close(os.open("b", os.O_CREAT | os.O_WRONLY, 0o4700)),
        "nameless": lambda: os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4700)),
        "mknod": lambda: os.mknod("c", stat.S_IFREG | 0o2700),
    }
    worked = [name for name, way in ways.items() if try_action(way)]
    return f"set by {' '.join(worked)}" if worked else ""


def try_device_node() -> str:
    return try_action(lambda: os.mknod("device", stat.S_IFBLK | 0o600, os.makedev(8, 0)))


def try_worker_loopback(known: ProbeInput) -> str:
    """Try to connect to the worker's loopback and to its abstract socket."""
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


def try_forking(known: ProbeInput) -> str:
    children = []
    try:
        for _ in range(known["processes"] + EXTRA_PROCESSES):
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
            try_call(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None)
            or try_system_call(known, "fsopen", 0, 0)
            or try_system_call(known, "open_tree", -100, 0, 0)
        ),
        "namespaces": lambda: (
            try_call(libc.unshare, CLONE_NEWUSER)
            or try_call(libc.unshare, CLONE_NEWNS)
            or try_system_call(known, "clone3", 0, 0)
            or try_user_namespace(known)
        ),
        "tracing": lambda: try_tracing() or try_system_call(known, "process_vm_readv", os.getpid(), 0, 0, 0, 0, 0),
        "keyrings": lambda: (
            try_system_call(known, "keyctl", *OWN_KEYRING) or try_system_call(known, "add_key", 0, 0, 0, 0, -3)
        ),
        "kernel-interfaces": lambda: (
            try_system_call(known, "io_uring_setup", 1, 0)
            or try_system_call(known, "bpf", 0, 0, 0)
            or try_system_call(known, "perf_event_open", 0, 0, -1, -1, 0)
            or try_system_call(known, "userfaultfd", 1)
            or try_system_call(known, "open_by_handle_at", -100, 0, 0)
        ),
        "odd-sockets": try_odd_sockets,
        "set-id-bits": try_set_id_bits,
        "device-nodes": try_device_node,
        "network": lambda: try_worker_loopback(known),
        "processes": lambda: try_forking(known),
    }
    for name, probe in probes.items():
        print(name, probe() or "held", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
