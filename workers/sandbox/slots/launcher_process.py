"""Launcher process: forks the worker's slots.

Slots exist because only a process with the same uid may always limit a run from outside: a root worker in a container
often lacks CAP_SYS_RESOURCE and CAP_SYS_PTRACE, which prlimit(2) and /proc/<pid>/root of another user's process
require. So the slots of a root worker first switch to users of their own. The launcher keeps the worker's user and only
forks: slots share its memory and start within a millisecond.

Run as a script (`python -I -S`), hence the standard library only. Each request is one byte; each response is the pid of
a new slot and the worker's end of the channel to it, or an error message.
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
LOADED_SCRIPTS = 4  # as many as launcher.LOADED_MODULES


def fork_slot(slot: Callable[[], None], *closed: socket.socket) -> int:
    """Fork a slot and return its pid; the child closes these sockets."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for channel in closed:
            channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # adopt the pid 1 of a run whose monitor exits first; a container's pid 1 may not reap it
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with contextlib.suppress(ConnectionError):
            slot()
        status = 0
    finally:
        os._exit(status)  # the channel closes, and the worker discards the slot


class SharedEnvironment:
    """Implements the protocol of the same name in `slot_process`."""

    def __init__(
        self,
        root: ModuleType,
        netlink: ModuleType,
        plan: Mapping[str, Mapping[str, str]],
        bwrap: int,
        libraries: Mapping[str, int],
    ) -> None:
        root.create_namespaces()
        self._network = netlink.NetworkNamespace()
        root.enter_root(plan, bwrap, libraries)
        self.bwrap: str = root.BWRAP
        self._root = root

    def open_input(self, name: str) -> int:
        opened: int = self._root.open_input(name)
        return opened

    def block_network(self, unroutable: Sequence[str], unsendable: Sequence[str]) -> None:
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


def _switch_to_uid(uid: int) -> None:
    """Switch permanently; the gid has the same number."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _load(path: str) -> ModuleType:
    loader = SourceFileLoader(os.path.basename(path).removesuffix(".py"), path)
    module = ModuleType(loader.name)
    loader.exec_module(module)
    return module


def main(arguments: Sequence[str]) -> int:
    channel_fd, parent, *numbers = arguments[: -LOADED_SCRIPTS - 3]
    base, one_for_each, names = arguments[-3:]
    channel = socket.socket(fileno=int(channel_fd))
    worker_deadline, runs, bwrap, *others = map(int, numbers)
    libraries = dict(zip(names.split("/"), others, strict=bool(names)))
    for descriptor in (channel.fileno(), worker_deadline, runs, bwrap, *others):
        os.set_inheritable(descriptor, False)
    try:
        worker = os.pidfd_open(int(parent))
    except ProcessLookupError:
        return 0
    slots, root, netlink, deadline = map(_load, arguments[-LOADED_SCRIPTS - 3 : -3])
    os.chdir("/")
    os.umask(0o022)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # slots that exit leave no zombies
    with contextlib.suppress(ConnectionError):

        def new_slot(theirs: socket.socket) -> None:
            own_runs = os.open(f"/proc/self/fd/{runs}", os.O_RDONLY | os.O_CLOEXEC)
            if int(base) >= 0:
                uid = int(base) + int(one_for_each) * os.getpid()
                try:
                    _switch_to_uid(uid)
                except OSError as error:
                    slots.refuse(theirs, f"the worker is root and may not become uid {uid} ({error})")
                    return
            timer = deadline.Timer(worker_deadline, own_runs)
            slots.serve(
                theirs, worker, bwrap, lambda plan: SharedEnvironment(root, netlink, plan, bwrap, libraries), timer
            )

        _serve(channel, worker, new_slot)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
