"""Launcher that execs the process described in a file: `python -I -S launch.py process.json`.

The process dies with its parent, even if the parent was killed, so a dead supervisor leaves nothing running.
Exec keeps it one process: the supervisor's stop signal must reach the database, not a wrapper.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x80000
MS_NOSUID = 0x2
MS_NODEV = 0x4
TEMPORARY_DIRECTORY = "/tmp"  # noqa: S108

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded_kind = None if kind is None else kind.encode()
    options = b"mode=700" if kind == "tmpfs" else None
    _check(
        _libc.mount(os.fsencode(source), os.fsencode(target), encoded_kind, ctypes.c_ulong(flags), options),
        f"mount on {target}",
    )


def enter_user_namespace(uid: int, gid: int, *, mounts: bool = False) -> None:
    """Enter a new user namespace in which this process is `uid`:`gid`; outside it keeps its user."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _check(_libc.unshare(CLONE_NEWUSER | (CLONE_NEWNS if mounts else 0)), "unshare")
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(content)


def hide_temporary_directory(visible: list[str]) -> None:
    """Mount an empty private /tmp in which only `visible` paths of the real one remain."""
    enter_user_namespace(os.geteuid(), os.getegid(), mounts=True)
    _mount("none", "/", None, MS_REC | MS_SLAVE)
    temporary = os.path.realpath(TEMPORARY_DIRECTORY)
    kept = [
        (os.open(path, os.O_PATH | os.O_CLOEXEC), path, os.path.isdir(path))
        for path in map(os.path.realpath, visible)
        if os.path.commonpath([temporary, path]) == temporary
    ]
    _mount("tmpfs", temporary, "tmpfs", MS_NOSUID | MS_NODEV)
    for descriptor, path, is_directory in kept:
        os.makedirs(path if is_directory else os.path.dirname(path), mode=0o700, exist_ok=True)
        if not is_directory:
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
        _mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
        os.close(descriptor)


def read_start_time(pid: int) -> int | None:
    """Return the start time in clock ticks since boot; with the pid it identifies a process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19])


def kill_previous_group(record: str) -> None:
    """Kill what an earlier instance left in its process group: children survive a killed parent."""
    try:
        with open(record, encoding="utf-8") as file:
            previous = json.load(file)
    except (OSError, ValueError):
        return
    # The kernel does not reuse a group id as a pid while the group has members.
    if read_start_time(previous["pid"]) in (None, previous["started"]):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(previous["pid"], signal.SIGKILL)


def write_record(record: str) -> None:
    with open(f"{record}.new", "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "started": read_start_time(os.getpid())}, file)
    os.replace(f"{record}.new", record)


def main(specification: str) -> None:
    with open(specification, encoding="utf-8") as file:
        process = json.load(file)
    parent = os.getppid()
    if process["record"] is not None:
        if process["kill_previous_group"]:
            kill_previous_group(process["record"])
        write_record(process["record"])
    if process["map_to"] is not None:
        enter_user_namespace(*process["map_to"])
    if process["private_tmp"]:
        try:
            hide_temporary_directory(process["visible"])
        except OSError as error:
            sys.stderr.write(f"punctual: {process['name']} shares the system's /tmp ({error})\n")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    # After the namespaces: the kernel forgets the death signal when credentials change.
    if process["death_signal"] is not None:
        _check(_libc.prctl(PR_SET_PDEATHSIG, process["death_signal"], 0, 0, 0), "prctl")
        if os.getppid() != parent:
            sys.exit(f"punctual: the parent of {process['name']} ended during its start")
    os.chdir(process["directory"])
    os.execve(process["argv"][0], process["argv"], process["environment"])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1])
