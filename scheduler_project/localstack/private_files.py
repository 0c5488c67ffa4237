"""Files and directories that only their owner may read.

Writes are atomic: a stack that is killed while it writes finds a complete file at its next start.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def write_private(path: Path, text: str) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), PRIVATE_FILE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_private_directory(path: Path) -> Path:
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    return path
