"""Artifacts on the worker's disk, by their hash.

A file bears its hash as its name only once its bytes were seen to have it: nothing half-fetched is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.errors import ArtifactHashMismatch

Fetch = Callable[[str], Iterator[bytes]]

HASH = re.compile("[0-9a-f]{64}")


class ArtifactCache:
    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._fetching: dict[str, threading.Lock] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in directory.glob("*.part"):
            leftover.unlink(missing_ok=True)

    def open(self, sha256: str, size: int, fetch: Fetch) -> int:
        """A descriptor of the verified bytes, which the caller closes; it outlives an eviction of the file."""
        if not HASH.fullmatch(sha256):
            # It becomes a path, and comes from elsewhere.
            raise ArtifactHashMismatch("The program is not named by a hash.")
        path = self._directory / sha256
        with self._lock:
            fetching = self._fetching.setdefault(sha256, threading.Lock())
        with fetching:
            descriptor = _open_whole(path, size)
            if descriptor is not None:
                return descriptor
            descriptor = self._fetch(path, sha256, size, fetch)
        with self._lock:
            # Whoever waits at this lock still has it; whoever comes later finds the file.
            self._fetching.pop(sha256, None)
        self._evict(keep=sha256)
        return descriptor

    def _fetch(self, path: Path, sha256: str, size: int, fetch: Fetch) -> int:
        digest, received = hashlib.sha256(), 0
        handle, name = tempfile.mkstemp(suffix=".part", dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as part:
                for piece in fetch(sha256):
                    received += len(piece)
                    if received > size:
                        break
                    digest.update(piece)
                    part.write(piece)
                part.flush()
                # Without it a power cut could leave the name and not the bytes.
                os.fsync(part.fileno())
            if received != size or digest.hexdigest() != sha256:
                raise ArtifactHashMismatch
            # Opened before it can be found: an eviction may be faster than us.
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.rename(name, path)
        except BaseException:
            os.unlink(name)
            raise
        return descriptor

    def _evict(self, keep: str) -> None:
        """Least recently used first, until the rest fits."""
        with self._lock:
            files = sorted(
                # What is still being fetched has a dot in its name, and may go away while we look.
                (status.st_mtime, status.st_size, Path(entry.path))
                for entry in os.scandir(self._directory)
                if "." not in entry.name and (status := entry.stat())
            )
            total = sum(size for _, size, _ in files)
            for _, size, path in files:
                if total <= self._max_bytes:
                    break
                if path.name != keep:
                    path.unlink(missing_ok=True)
                    total -= size


def _open_whole(path: Path, size: int) -> int | None:
    """None if it is not there, or was cut short by a crash of the machine."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    if os.fstat(descriptor).st_size != size:
        os.close(descriptor)
        return None
    os.utime(descriptor)
    return descriptor
