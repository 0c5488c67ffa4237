"""A helper process of the worker that runs one of its scripts, and the channel to it.

Invariant: the script sees the channel close when the process that started it exits, for whatever reason.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence


class Sidecar:
    """The script gets as arguments its end of the channel, the worker's pid, the descriptors, then `arguments`."""

    def __init__(
        self, script: str, *, descriptors: Sequence[int] = (), arguments: Sequence[object] = (), answer_seconds: float
    ) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner = os.getpid()
        argv = [theirs.fileno(), self._owner, *descriptors, *arguments]
        try:
            self._process = subprocess.Popen(
                # -I -S: only the standard library
                [sys.executable, "-I", "-S", script, *map(str, argv)],
                pass_fds=(theirs.fileno(), *descriptors),
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must only reach the worker, which decides what to do with its runs
            )
        except OSError:
            self.channel.close()
            raise
        finally:
            theirs.close()
        self.channel.settimeout(answer_seconds)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        # after a fork, parent and child share the channel, and responses could reach either
        return self._owner == os.getpid() and self._process.poll() is None

    def kill(self) -> None:
        """Kill it before it can react to the closed channel."""
        if self._owner == os.getpid():
            self._process.kill()
        self.stop()

    def stop(self) -> None:
        self.channel.close()
        if self._owner == os.getpid():
            try:
                self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=5)
