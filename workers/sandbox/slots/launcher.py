"""Client of the launcher and its slots: start them, send requests, stop them.

Invariant: one request at a time, with one response; a slot that failed to respond is never used again.
"""

import contextlib
import json
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox import pidfd
from workers.sandbox.bubblewrap.command_line import NAMESPACES, private_libraries
from workers.sandbox.errors import SandboxError
from workers.sandbox.memory_files import memory_file
from workers.sandbox.network import netlink
from workers.sandbox.network.rules import Blocklist
from workers.sandbox.sidecar import Sidecar
from workers.sandbox.slots import deadline, launcher_process, slot_process, slot_root
from workers.sandbox.slots.users import SlotUsers

LOST_DESCRIPTORS = "The sandbox's descriptors did not arrive; are too many files open (ulimit -n)?"
SANDBOX_DESCRIPTORS = 6  # sent by a slot for each sandbox
LOADED_MODULES = (slot_process, slot_root, netlink, deadline)  # loaded by the launcher process, in this order
ANSWER_TIMEOUT_SECONDS = slot_process.SETUP_TIMEOUT_SECONDS + slot_process.REAP_TIMEOUT_SECONDS + 5.0


@dataclass(frozen=True)
class BuiltSandbox:
    """A built sandbox whose program has not started; owns descriptors of its pid 1 and its directories."""

    child: int
    monitor: int
    namespaces: tuple[str, ...]
    pidfd: int
    work: int
    out: int
    proc: int
    tmp: int
    shm: int

    @property
    def writable(self) -> tuple[int, int, int]:
        """Return descriptors of the file systems that the program may write to."""
        return self.work, self.tmp, self.shm

    def open_output(self) -> int:
        """Open the current /work/out: the program may have made it unreadable or replaced it."""
        with contextlib.suppress(OSError):
            os.fchmod(self.work, 0o700)
            found = os.open("out", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.work)
            try:
                if stat.S_ISDIR(os.fstat(found).st_mode):
                    os.chmod(f"/proc/self/fd/{found}", 0o700)
                    return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            finally:
                os.close(found)
        with contextlib.suppress(OSError):
            os.fchmod(self.out, 0o700)
        return os.dup(self.out)

    def close(self) -> None:
        for descriptor in (self.pidfd, self.work, self.out, self.proc, self.tmp, self.shm):
            os.close(descriptor)


@dataclass(frozen=True)
class ReapResult:
    """The slot's report on an ended run; empty if the slot has died."""

    cpu_seconds: float | None = None
    monitor_failed: bool = False  # bubblewrap exited with an error
    clean: bool = False  # nothing of the run remains in the slot
    slot_died: bool = False


class SlotProcess:
    """One slot process; used by one run at a time."""

    def __init__(self, pid: int, channel: socket.socket, uid: int | None) -> None:
        self.pid = pid
        self.uid = uid  # its uid and gid on the host, if they are not the worker's
        self.shares = False  # whether runs share its namespaces and root
        self.started_at = time.monotonic()
        self._owner = os.getpid()
        self._channel = channel
        self._pidfd = os.pidfd_open(pid)
        self._host = {name: read_own_namespace(name) for name in NAMESPACES}

    @property
    def alive(self) -> bool:
        # after a fork, parent and child share the channel, and responses could reach either
        return self.ours and self._channel.fileno() >= 0 and not pidfd.wait_for_exit(self._pidfd, 0)

    def open(self, root: Mapping[str, Mapping[str, str]]) -> None:
        """Build the shared root; call it inside the slot's cgroup, which then counts its memory."""
        response, _ = self._ask({"do": "open", "root": root}, ())
        if "error" in response:
            raise SandboxError(str(response["error"]))
        self.shares = True

    def open_input(self, name: str, descriptor: int) -> int | None:
        """Open this input file read-only, so that even its owner cannot write; None if that is not possible."""
        _, opened = self._ask({"do": "input", "name": name}, (descriptor,))
        return opened[0] if opened else None

    def launch(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        rlimits: Sequence[tuple[int, int]],
        fds: Sequence[int],
        *,
        blocklist: Blocklist | None = None,
    ) -> BuiltSandbox:
        """Build a sandbox; raise SandboxError if that fails, with bubblewrap's own error on its stderr.

        `blocklist`: the addresses that a run with a network must not reach.
        """
        request = {
            "do": "launch",
            "argv": list(argv),
            "environment": dict(environment),
            "rlimits": list(rlimits),
            "closed": blocklist and (blocklist.unroutable, blocklist.unsendable),
        }
        response, opened = self._ask(request, fds)
        if "error" in response:
            raise SandboxError(str(response["error"]))
        namespaces = response["namespaces"]
        if not isinstance(namespaces, dict) or len(opened) != SANDBOX_DESCRIPTORS:
            self._discard(response, opened)
            raise SandboxError(LOST_DESCRIPTORS)
        private = [name for name in NAMESPACES if namespaces.get(name) not in (None, self._host[name])]
        child, work, out, proc, tmp, shm = opened
        return BuiltSandbox(
            child=int(str(response["child"])),
            monitor=int(str(response["monitor"])),
            namespaces=tuple(private),
            pidfd=child,
            work=work,
            out=out,
            proc=proc,
            tmp=tmp,
            shm=shm,
        )

    def _discard(self, response: Mapping[str, object], opened: Sequence[int]) -> None:
        """Kill a sandbox whose descriptors were lost: it would wait for its start byte forever."""
        for descriptor in opened:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            # Not reaped yet, so the pid is still valid.
            os.kill(int(str(response["child"])), signal.SIGKILL)
        self.close()

    def reap(self, launched: BuiltSandbox) -> ReapResult:
        """Reap the processes of an ended run."""
        try:
            response, _ = self._ask({"do": "reap", "pids": [launched.monitor, launched.child]}, ())
        except SandboxError:
            return ReapResult(slot_died=True)
        return ReapResult(
            float(str(response["cpu_seconds"])), bool(response["monitor_failed"]), bool(response["clean"])
        )

    @property
    def ours(self) -> bool:
        """Return whether this process owns the slot; after a fork, only the parent does."""
        return self._owner == os.getpid()

    def close(self) -> None:
        """Stop the slot, which also kills its run."""
        self._channel.close()

    def wait(self) -> None:
        """Wait for the slot to exit after `close`."""
        if self.ours and not pidfd.wait_for_exit(self._pidfd, 2):
            pidfd.kill_and_wait(self._pidfd)
        os.close(self._pidfd)

    def _ask(self, request: Mapping[str, object], fds: Sequence[int]) -> tuple[dict[str, object], list[int]]:
        if not self.alive:
            raise SandboxError("The slot of the sandbox has ended.")
        body = memory_file(json.dumps(request).encode())
        try:
            socket.send_fds(self._channel, [b"?"], [body, *fds])
            data, opened = slot_process.receive(self._channel, 65536, SANDBOX_DESCRIPTORS)
            if not data:
                raise OSError("it has exited")
            return json.loads(data), opened
        except (OSError, ValueError) as error:
            self.close()
            raise SandboxError(f"The slot did not respond ({error}); the next run gets a new one.") from error
        finally:
            os.close(body)


class Launcher:
    """Handle of the launcher process, shared by all threads; the first request starts the process."""

    def __init__(self, bwrap: Path, users: SlotUsers | None, worker_deadline: deadline.Deadline) -> None:
        self._bwrap = bwrap
        self._users = users
        self._deadline = worker_deadline
        self._lock = threading.Lock()
        self._sidecar: Sidecar | None = None

    def start_slot(self) -> SlotProcess:
        with self._lock:
            try:
                response, opened = self._ask()
            except OSError:  # it was just exiting, and has started nothing
                try:
                    response, opened = self._ask()
                except OSError as error:
                    raise SandboxError(f"The launcher of sandboxes does not respond: {error}.") from error
        if not opened:
            raise SandboxError(LOST_DESCRIPTORS if response.isdigit() else response.decode(errors="replace"))
        ours = socket.socket(fileno=opened[0])
        ours.settimeout(ANSWER_TIMEOUT_SECONDS)
        try:
            return SlotProcess(int(response), ours, None if self._users is None else self._users.uid_of(int(response)))
        except OSError as error:
            ours.close()
            raise SandboxError(f"A slot for sandboxes ended as it started ({error}).") from error

    def _ask(self) -> tuple[bytes, list[int]]:
        if self._sidecar is None or not self._sidecar.alive:
            self._stop()
            self._sidecar = self._start()
        try:
            self._sidecar.channel.send(b"?")
            response, opened = slot_process.receive(self._sidecar.channel, 4096, 1)
            if not response:
                raise OSError("it has exited")
        except OSError:
            self._stop()
            raise
        return response, opened

    def close(self) -> None:
        """Stop the launcher; existing slots keep running."""
        with self._lock:
            self._stop()

    def _start(self) -> Sidecar:
        # the uid that bubblewrap runs as cannot read a checkout in root's home
        libraries = private_libraries(self._bwrap)
        opened = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (self._bwrap, *libraries)]
        names = "/".join(path.name for path in libraries)
        users = (-1, 0) if self._users is None else (self._users.base, int(self._users.uid_per_slot))
        try:
            return Sidecar(
                launcher_process.__file__,
                descriptors=[self._deadline.descriptor, self._deadline.runs, *opened],
                arguments=(*(module.__file__ for module in LOADED_MODULES), *users, names),
                answer_seconds=ANSWER_TIMEOUT_SECONDS,
            )
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _stop(self) -> None:
        if self._sidecar is not None:
            self._sidecar.stop()
            self._sidecar = None


def read_own_namespace(name: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return None
