"""The one error of the local stack: its message is the sentence that a person reads.

Whatever goes wrong ends here, so that nobody who types `./punctual up` is shown a stack trace.
"""

from __future__ import annotations

import errno
from pathlib import Path

from jobs.errors import PunctualError


class StackProblem(PunctualError):
    """The local stack cannot go on; the sentence says why and what to do."""

    def __init__(self, sentence: str, *, log: Path | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        # Its last lines are shown below the sentence.
        self.log = log


def describe_os_error(error: OSError, directory: Path) -> StackProblem:
    """Turns an error of the file system under `directory` into a sentence."""
    path = error.filename or directory
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StackProblem(
                f"There is no disk space left for {directory}: free some, "
                "or point PUNCTUAL_VAR to a directory on another disk."
            )
        case errno.EROFS:
            return StackProblem(
                f"{path} is on a read-only file system: point PUNCTUAL_VAR to a directory that can be written."
            )
        case errno.EACCES | errno.EPERM:
            return StackProblem(
                f"{path} cannot be used by this user: run as the user who owns {directory}, "
                "or point PUNCTUAL_VAR to a directory of your own."
            )
        case errno.ENOTDIR | errno.EEXIST:
            return StackProblem(f"{path} is not a directory: move it away, or point PUNCTUAL_VAR to another directory.")
        case _:
            return StackProblem(f"{path} could not be used: {error.strerror or error}.")
