"""Pseudo-terminals for tests: a command on one, and all that it shows there."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fcntl import ioctl
from termios import TIOCSWINSZ


def read_until_closed(screen: int) -> bytes:
    """Return the output of a terminal once no process has it open; a single read may return a part of it."""
    shown = b""
    with suppress(OSError):  # EIO is the end of a terminal
        while piece := os.read(screen, 4096):
            shown += piece
    return shown


def run_on_terminal(
    command: Sequence[str],
    *streams: str,
    environment: Mapping[str, str],
    typed: bytes = b"",
    columns: int | None = None,
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a command with some standard streams on a terminal; return it and the output there."""
    screen, keyboard = os.openpty()
    if columns is not None:
        ioctl(keyboard, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.write(screen, typed)
    with subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdin=keyboard if "stdin" in streams else subprocess.DEVNULL,
        stdout=keyboard if "stdout" in streams else subprocess.PIPE,
        stderr=keyboard if "stderr" in streams else subprocess.PIPE,
    ) as process:
        os.close(keyboard)
        shown = read_until_closed(screen).decode().replace("\r\n", "\n")
        stdout, stderr = process.communicate(timeout=60)
    os.close(screen)
    return subprocess.CompletedProcess(command, process.returncode, stdout or "", stderr or ""), shown
