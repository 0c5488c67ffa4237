"""The worker's end of the launcher process: starts it, sends it requests, ends it.

Invariant: one request at a time has one answer; a launcher that failed to answer is never asked again.
"""

import contextlib
import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.sandbox import launcher_process
from workers.sandbox.bubblewrap import NAMESPACES
from workers.sandbox.companion import Companion
from workers.sandbox.errors import SandboxError

ANSWER_SECONDS = launcher_process.SETUP_SECONDS + launcher_process.REAP_SECONDS + 5.0


@dataclass(frozen=True)
class Launched:
    """A sandbox that is built and waits; it owns descriptors of its pid 1, /work, /work/out and /proc."""

    child: int
    monitor: int
    namespaces: tuple[str, ...]
    pidfd: int
    work: int
    out: int
    proc: int
    by: Companion  # the launcher that is its parent

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
        for descriptor in (self.pidfd, self.work, self.out, self.proc):
            os.close(descriptor)


@dataclass(frozen=True)
class Reaped:
    """What the launcher knows of a run that is over; nothing, if the launcher itself is gone."""

    cpu_seconds: float | None = None
    monitor_failed: bool = False  # bubblewrap ended by itself with an error
    launcher_gone: bool = False


class Launcher:
    """Shared by all threads of one worker process; the process is started by the first request."""

    def __init__(self, bwrap: Path, uid: int | None, gid: int | None) -> None:
        self._bwrap = bwrap
        self._ids = (-1 if uid is None else uid, -1 if gid is None else gid)
        self._lock = threading.Lock()
        self._companion: Companion | None = None

    def launch(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        rlimits: Sequence[tuple[int, int]],
        fds: Sequence[int],
    ) -> Launched:
        """Raise SandboxError if the sandbox cannot be built; bubblewrap's own words are on its stderr."""
        request = {
            "do": "launch",
            "argv": list(argv),
            "environment": dict(environment),
            "rlimits": list(rlimits),
        }
        answer, opened, by = self._ask(request, fds)
        if "error" in answer:
            raise SandboxError(str(answer["error"]))
        namespaces = answer["namespaces"]
        if not isinstance(namespaces, dict) or len(opened) != 4:
            self._discard(answer, opened, by)
            raise SandboxError("The sandbox's descriptors did not arrive; are too many files open (ulimit -n)?")
        private = [name for name in NAMESPACES if namespaces.get(name) not in (None, own_namespace(name))]
        pidfd, work, out, proc = opened
        return Launched(
            child=int(str(answer["child"])),
            monitor=int(str(answer["monitor"])),
            namespaces=tuple(private),
            pidfd=pidfd,
            work=work,
            out=out,
            proc=proc,
            by=by,
        )

    def _discard(self, answer: Mapping[str, object], opened: Sequence[int], by: Companion) -> None:
        """A sandbox that nobody can hold: closing the pipe that it waits at would let its program go."""
        for descriptor in opened:
            os.close(descriptor)
        pids = [int(str(answer[name])) for name in ("monitor", "child")]
        with contextlib.suppress(OSError):
            # Not reaped yet, so that the number is still its own.
            os.kill(pids[1], signal.SIGKILL)
        with contextlib.suppress(SandboxError):
            self._ask({"do": "reap", "pids": pids}, (), of=by)

    def reap(self, launched: Launched) -> Reaped:
        """Collect the processes of a run that is over."""
        try:
            answer, _, _ = self._ask({"do": "reap", "pids": [launched.monitor, launched.child]}, (), of=launched.by)
        except SandboxError:
            return Reaped(launcher_gone=True)
        return Reaped(float(str(answer["cpu_seconds"])), bool(answer["monitor_failed"]))

    def close(self) -> None:
        """End the launcher, and with it every sandbox it started."""
        with self._lock:
            self._stop()

    def _ask(
        self, request: Mapping[str, object], fds: Sequence[int], *, of: Companion | None = None
    ) -> tuple[dict[str, object], list[int], Companion]:
        """`of`: one launcher and no other, for a successor knows nothing of what it started."""
        with self._lock:
            companion = self._companion
            if of is not None and (of is not companion or not of.alive):
                raise SandboxError("The launcher of the sandbox has ended.")
            if companion is None or not companion.alive:
                self._stop()
                companion = self._start()
            try:
                return *_exchange(companion.channel, request, fds), companion
            except (OSError, ValueError) as error:
                self._stop()
                raise SandboxError(
                    f"The launcher of sandboxes did not answer ({error}); the next run starts a new one."
                ) from error

    def _start(self) -> Companion:
        bwrap = os.open(self._bwrap, os.O_PATH | os.O_CLOEXEC)
        try:
            self._companion = Companion(
                launcher_process.__file__, descriptors=[bwrap], arguments=self._ids, answer_seconds=ANSWER_SECONDS
            )
        finally:
            os.close(bwrap)
        return self._companion

    def _stop(self) -> None:
        if self._companion is not None:
            self._companion.stop()
            self._companion = None


def _exchange(
    channel: socket.socket, request: Mapping[str, object], fds: Sequence[int]
) -> tuple[dict[str, object], list[int]]:
    body = memory_file(json.dumps(request).encode())
    try:
        socket.send_fds(channel, [b"?"], [body, *fds])
    finally:
        os.close(body)
    data, opened = launcher_process.receive(channel, 65536, 8)
    if not data:
        raise OSError("it has ended")
    return json.loads(data), opened


def memory_file(content: bytes) -> int:
    """Return a new descriptor, at offset 0, of a file that exists in memory only."""
    descriptor = os.memfd_create("punctual", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def own_namespace(name: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return None
