"""The worker's end of the launcher and of its slots: starts them, sends them requests, ends them.

Invariant: one request at a time has one answer; a slot that failed to answer is never asked again.
"""

import contextlib
import fcntl
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

from workers.sandbox import launcher_process, netlink, pidfd, slot_process, slot_root
from workers.sandbox.bubblewrap import NAMESPACES, private_libraries
from workers.sandbox.companion import Companion
from workers.sandbox.errors import SandboxError
from workers.sandbox.network_rules import Blocks

LOST_DESCRIPTORS = "The sandbox's descriptors did not arrive; are too many files open (ulimit -n)?"
ANSWER_SECONDS = slot_process.SETUP_SECONDS + slot_process.REAP_SECONDS + 5.0


@dataclass(frozen=True)
class Launched:
    """A sandbox that is built and waits; it owns descriptors of its pid 1 and of directories in it.

    Of one that is to have a network, also of the user namespace that owns its network namespace, and of that.
    """

    child: int
    monitor: int
    namespaces: tuple[str, ...]
    pidfd: int
    work: int
    out: int
    proc: int
    tmp: int
    shm: int
    network: tuple[int, ...] = ()

    @property
    def writable(self) -> tuple[int, int, int]:
        """The file systems that it may write to."""
        return self.work, self.tmp, self.shm

    def open_output(self) -> int:
        """Open /work/out as it is now: a program may have closed it, remade it, or put a link there."""
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
        for descriptor in (self.pidfd, self.work, self.out, self.proc, self.tmp, self.shm, *self.network):
            os.close(descriptor)


@dataclass(frozen=True)
class Reaped:
    """What the slot knows of a run that is over; nothing, if the slot itself is gone."""

    cpu_seconds: float | None = None
    monitor_failed: bool = False  # bubblewrap ended by itself with an error
    clean: bool = False  # nothing of it is left in the slot
    slot_gone: bool = False


class Slot:
    """One slot process; used by one run at a time."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.shares = False  # whether it has namespaces and a root that its runs share
        self.started_at = time.monotonic()
        self._owner = os.getpid()
        self._channel = channel
        self._pidfd = os.pidfd_open(pid)
        self._host = {name: own_namespace(name) for name in NAMESPACES}

    @property
    def alive(self) -> bool:
        # after a fork the channel is shared with the parent, and answers would reach either
        return self.ours and self._channel.fileno() >= 0 and not pidfd.is_over(self._pidfd, 0)

    def open(self, root: Mapping[str, Mapping[str, str]]) -> None:
        """To be called once it is in its cgroup: what it makes now is counted there."""
        answer, _ = self._ask({"do": "open", "root": root}, ())
        if "error" in answer:
            raise SandboxError(str(answer["error"]))
        self.shares = True

    def launch(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        rlimits: Sequence[tuple[int, int]],
        fds: Sequence[int],
        *,
        hold: int,
        blocks: Blocks | None = None,
    ) -> Launched:
        """Raise SandboxError if the sandbox cannot be built; bubblewrap's own words are on its stderr.

        `hold`: our end of the pipe that it waits at. `blocks`: what a run that is to have a network must not reach.
        """
        request = {
            "do": "launch",
            "argv": list(argv),
            "environment": dict(environment),
            "rlimits": list(rlimits),
            "closed": blocks and (blocks.unroutable, blocks.unsendable),
        }
        answer, opened = self._ask(request, (hold, *fds))
        if "error" in answer:
            raise SandboxError(str(answer["error"]))
        namespaces = answer["namespaces"]
        if not isinstance(namespaces, dict) or len(opened) != (8 if blocks else 6):
            self._discard(answer, opened)
            raise SandboxError(LOST_DESCRIPTORS)
        private = [name for name in NAMESPACES if namespaces.get(name) not in (None, self._host[name])]
        child, work, out, proc, tmp, shm, *network = opened
        return Launched(
            child=int(str(answer["child"])),
            monitor=int(str(answer["monitor"])),
            namespaces=tuple(private),
            pidfd=child,
            work=work,
            out=out,
            proc=proc,
            tmp=tmp,
            shm=shm,
            network=tuple(network),
        )

    def _discard(self, answer: Mapping[str, object], opened: Sequence[int]) -> None:
        """A sandbox that nobody can hold: closing the pipe that it waits at would let its program go."""
        for descriptor in opened:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            # Not reaped yet, so that the number is still its own.
            os.kill(int(str(answer["child"])), signal.SIGKILL)
        self.close()

    def reap(self, launched: Launched) -> Reaped:
        """Collect the processes of a run that is over."""
        try:
            answer, _ = self._ask({"do": "reap", "pids": [launched.monitor, launched.child]}, ())
        except SandboxError:
            return Reaped(slot_gone=True)
        return Reaped(float(str(answer["cpu_seconds"])), bool(answer["monitor_failed"]), bool(answer["clean"]))

    @property
    def ours(self) -> bool:
        """Not after a fork: it is the parent's, and so is its run."""
        return self._owner == os.getpid()

    def close(self) -> None:
        """End it, and with it the run it may have."""
        self._channel.close()

    def wait(self) -> None:
        """After `close`: until it is gone."""
        if self.ours and not pidfd.is_over(self._pidfd, 2):
            pidfd.kill_and_wait(self._pidfd)
        os.close(self._pidfd)

    def _ask(self, request: Mapping[str, object], fds: Sequence[int]) -> tuple[dict[str, object], list[int]]:
        if not self.alive:
            raise SandboxError("The slot of the sandbox has ended.")
        body = memory_file(json.dumps(request).encode())
        try:
            socket.send_fds(self._channel, [b"?"], [body, *fds])
            data, opened = slot_process.receive(self._channel, 65536, 8)
            if not data:
                raise OSError("it has ended")
            return json.loads(data), opened
        except (OSError, ValueError) as error:
            self.close()
            raise SandboxError(f"The slot did not answer ({error}); the next run gets a new one.") from error
        finally:
            os.close(body)


class Launcher:
    """Shared by all threads of one worker process; the process is started by the first request."""

    def __init__(self, bwrap: Path, uid: int | None, gid: int | None) -> None:
        self._bwrap = bwrap
        self._ids = (-1 if uid is None else uid, -1 if gid is None else gid)
        self._lock = threading.Lock()
        self._companion: Companion | None = None

    def start_slot(self) -> Slot:
        with self._lock:
            try:
                answer, opened = self._ask()
            except OSError:  # it was just ending; nothing was started by it
                try:
                    answer, opened = self._ask()
                except OSError as error:
                    raise SandboxError(f"The launcher of sandboxes does not answer: {error}.") from error
        if not opened:
            raise SandboxError(LOST_DESCRIPTORS if answer.isdigit() else answer.decode(errors="replace"))
        ours = socket.socket(fileno=opened[0])
        ours.settimeout(ANSWER_SECONDS)
        try:
            return Slot(int(answer), ours)
        except OSError as error:
            ours.close()
            raise SandboxError(f"A slot for sandboxes ended as it started ({error}).") from error

    def _ask(self) -> tuple[bytes, list[int]]:
        if self._companion is None or not self._companion.alive:
            self._stop()
            self._companion = self._start()
        try:
            self._companion.channel.send(b"?")
            answer, opened = slot_process.receive(self._companion.channel, 4096, 1)
            if not answer:
                raise OSError("it has ended")
        except OSError:
            self._stop()
            raise
        return answer, opened

    def close(self) -> None:
        """No more slots; those that there are go on."""
        with self._lock:
            self._stop()

    def _start(self) -> Companion:
        # a checkout in root's home is closed to the uid that bubblewrap runs as, and so are its libraries
        libraries = private_libraries(self._bwrap)
        opened = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (self._bwrap, *libraries)]
        names = "/".join(path.name for path in libraries)
        try:
            return Companion(
                launcher_process.__file__,
                descriptors=opened,
                arguments=(slot_process.__file__, slot_root.__file__, netlink.__file__, *self._ids, names),
                answer_seconds=ANSWER_SECONDS,
            )
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _stop(self) -> None:
        if self._companion is not None:
            self._companion.stop()
            self._companion = None


def memory_file(content: bytes) -> int:
    """Return a new descriptor, at offset 0, of a file that exists in memory only."""
    descriptor = os.memfd_create("punctual", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def sealed_copy(source: int) -> int:
    """Return a new descriptor, at offset 0, of a copy in memory that nobody can change.

    For what a program itself gets: through /proc/self/fd it would open the host's own file anew, for writing, as its
    owner may.
    """
    copy = os.memfd_create("punctual", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        size, sent = os.fstat(source).st_size, 0
        while sent < size:
            step = os.sendfile(copy, source, sent, size - sent)
            if not step:
                break  # it became shorter meanwhile
            sent += step
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
        return os.open(f"/proc/self/fd/{copy}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(copy)


def own_namespace(name: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return None
