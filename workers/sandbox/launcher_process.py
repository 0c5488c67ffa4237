"""The unprivileged process that a worker's slots are forked from.

It exists because only a process of the same uid may always limit a run from outside: a root worker in a container
often lacks CAP_SYS_RESOURCE and CAP_SYS_PTRACE, without which prlimit(2) on, and /proc/<pid>/root of, another
user's process are refused. It starts as the worker, drops to `uid` for good, and then only forks: slots share its
memory and are there in a millisecond.

Run as a script (`python -I -S`), hence the standard library only. Each request is one byte; each answer is the pid
of a new slot and the worker's end of the channel to it, or a sentence on why there is none.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from types import ModuleType

PR_SET_CHILD_SUBREAPER = 36


def fork_slot(slot: Callable[[], None], *closed: socket.socket) -> int:
    """Return the pid of a new process that is a slot; the sockets are not for it."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for channel in closed:
            channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # a monitor that leaves before its pid 1 would else leave a zombie to whatever is pid 1 of a container
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with contextlib.suppress(ConnectionError):
            slot()
        status = 0
    finally:
        os._exit(status)  # whatever happened: the channel ends, and the worker gives the slot up


class Shared:
    """What the runs of one slot share; `slot_process` says what it is for."""

    def __init__(
        self,
        root: ModuleType,
        netlink: ModuleType,
        plan: Mapping[str, Mapping[str, str]],
        bwrap: int,
        libraries: Mapping[str, int],
    ) -> None:
        root.own_namespaces()
        self._network = netlink.Network()
        root.enter_root(plan, bwrap, libraries)
        self.bwrap: str = root.BWRAP
        self._root = root

    def close_network(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None:
        self._network.close(unroutable, unsendable)

    def is_clean(self) -> bool:
        return not self._root.has_terminals() and not self._network.in_use()

    def renew(self) -> None:
        self._network.refresh()


def _serve(channel: socket.socket, worker: int, new_slot: Callable[[socket.socket], None]) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(worker, select.POLLIN)
    while True:
        if any(descriptor == worker for descriptor, _ in poll.poll()) or not channel.recv(16):
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            try:
                pid = fork_slot(partial(new_slot, theirs), channel, ours)
            except OSError as error:
                channel.send(f"a slot for sandboxes could not be started: {error}".encode())
                continue
            socket.send_fds(channel, [str(pid).encode()], [ours.fileno()])


def _refuse(channel: socket.socket, why: str) -> None:
    while channel.recv(16):
        channel.send(why.encode())


def _load(path: str) -> ModuleType:
    loader = SourceFileLoader(os.path.basename(path).removesuffix(".py"), path)
    module = ModuleType(loader.name)
    loader.exec_module(module)
    return module


def main(arguments: Sequence[str]) -> int:
    channel_fd, parent, *numbers, slot_script, root_script, netlink_script, uid, gid, names = arguments
    channel = socket.socket(fileno=int(channel_fd))
    bwrap, *others = map(int, numbers)
    libraries = dict(zip(names.split("/"), others, strict=bool(names)))
    for descriptor in (channel.fileno(), bwrap, *others):
        os.set_inheritable(descriptor, False)
    try:
        worker = os.pidfd_open(int(parent))
    except ProcessLookupError:
        return 0
    slots, root, netlink = map(_load, (slot_script, root_script, netlink_script))
    os.chdir("/")
    os.umask(0o022)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # slots that end are nobody's zombies
    with contextlib.suppress(ConnectionError):
        if int(uid) >= 0:
            try:
                os.setgroups([])
                os.setresgid(int(gid), int(gid), int(gid))
                os.setresuid(int(uid), int(uid), int(uid))
            except OSError as error:
                _refuse(channel, f"the worker is root and may not become uid {uid} ({error})")
                return 0

        def new_slot(theirs: socket.socket) -> None:
            slots.serve(theirs, worker, bwrap, lambda plan: Shared(root, netlink, plan, bwrap, libraries))

        _serve(channel, worker, new_slot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
