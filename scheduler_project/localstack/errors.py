"""The error type of the local stack: its message is the sentence that the user reads.

Every failure becomes one, so that `./punctual up` never prints a traceback.
"""

from __future__ import annotations

import errno
from pathlib import Path

from jobs.domain.errors import PunctualError


class StackError(PunctualError):
    """The local stack cannot continue; the message gives the reason and the remedy."""

    def __init__(self, sentence: str, *, log: Path | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.log = log  # its last lines are printed with the message


def describe_os_error(error: OSError, directory: Path) -> StackError:
    """Convert a file system error under `directory` into a message with a remedy."""
    path = error.filename or directory
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StackError(
                f"There is no disk space left for {directory}: free some, "
                "or point PUNCTUAL_VAR to a directory on another disk."
            )
        case errno.EROFS:
            return StackError(f"{path} is on a read-only file system: point PUNCTUAL_VAR to a writable directory.")
        case errno.EACCES | errno.EPERM:
            return StackError(
                f"{path} cannot be used by this user: run as the user who owns {directory}, "
                "or point PUNCTUAL_VAR to a directory of your own."
            )
        case errno.ENOTDIR | errno.EEXIST:
            return StackError(f"{path} is not a directory: move it away, or point PUNCTUAL_VAR to another directory.")
        case _:
            return StackError(f"{path} could not be used: {error.strerror or error}.")
