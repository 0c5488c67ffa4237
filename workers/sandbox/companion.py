"""A script of ours in a process of its own beside the worker, and the channel to it.

Invariant: it belongs to the process that started it, and sees the end of the channel when that ends, however it ends.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence


class Companion:
    """The script's arguments are its end of the channel, the worker's pid, the descriptors, then the rest."""

    def __init__(
        self, script: str, *, descriptors: Sequence[int] = (), arguments: Sequence[object] = (), answer_seconds: float
    ) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner = os.getpid()
        words = [theirs.fileno(), self._owner, *descriptors, *arguments]
        try:
            self._process = subprocess.Popen(
                # -I -S: nothing but the standard library, whatever is installed beside it
                [sys.executable, "-I", "-S", script, *map(str, words)],
                pass_fds=(theirs.fileno(), *descriptors),
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the worker, which decides what to do with its runs
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
        # after a fork the channel is shared with the parent, and answers would reach either
        return self._owner == os.getpid() and self._process.poll() is None

    def kill(self) -> None:
        """At once, before it can see the end of the channel and do what it does then."""
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
