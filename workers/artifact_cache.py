"""Artifacts on the worker's disk, by their hash.

A file bears its hash as its name only once its bytes were seen to have it: nothing half-fetched is ever executed. All
who want a hash at once share one download, and what became of it.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path

from jobs.errors import ArtifactHashMismatch
from workers.errors import TransferStopped

logger = logging.getLogger(__name__)

Fetch = Callable[[str], Iterator[bytes]]

HASH = re.compile("[0-9a-f]{64}")
# How often one that waits for another's download looks whether it is still wanted.
LOOK_SECONDS = 0.2


class ArtifactCache:
    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._fetching: dict[str, Future[None]] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in directory.glob("*.part"):
            leftover.unlink(missing_ok=True)

    def open(self, sha256: str, size: int, fetch: Fetch, stopped: Callable[[], bool] = lambda: False) -> int:
        """A descriptor of the verified bytes, which the caller closes; it outlives an eviction of the file.

        Raises TransferStopped once the caller has `stopped` wanting it.
        """
        if not HASH.fullmatch(sha256):
            # It becomes a path, and comes from elsewhere.
            raise ArtifactHashMismatch("The program is not named by a hash.")
        path = self._directory / sha256
        while True:
            with self._lock:
                # Under the lock, so that nobody fetches what somebody has just fetched.
                descriptor = _open_whole(path, size)
                if descriptor is not None:
                    return descriptor
                theirs = self._fetching.get(sha256)
                if theirs is None:
                    ours = self._fetching[sha256] = Future[None]()
            if theirs is None:
                return self._lead(ours, path, sha256, size, lambda: _unless(stopped, fetch(sha256)))
            _follow(theirs, stopped)

    def _lead(
        self, fetching: Future[None], path: Path, sha256: str, size: int, fetch: Callable[[], Iterator[bytes]]
    ) -> int:
        failure: BaseException | None = None
        try:
            descriptor = self._fetch(path, sha256, size, fetch)
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._lock:
                del self._fetching[sha256]
            if failure is None:
                fetching.set_result(None)
            else:
                fetching.set_exception(failure)
        self._evict(self._max_bytes, keep=sha256)
        return descriptor

    def _fetch(self, path: Path, sha256: str, size: int, fetch: Callable[[], Iterator[bytes]]) -> int:
        digest, received = hashlib.sha256(), 0
        # Somebody may have tidied up.
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".part", dir=self._directory)
        try:
            with os.fdopen(handle, "wb") as part:
                for piece in fetch():
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
        except BaseException as error:
            Path(name).unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                # What is kept for later must not be in the way of what is wanted now, and is tried again.
                self._evict(0)
            raise
        return descriptor

    def _evict(self, max_bytes: int, keep: str = "") -> None:
        """Least recently used first, until the rest fits. That it fails is no reason not to run."""
        try:
            with self._lock:
                files = sorted(
                    # What is still being fetched has a dot in its name, and may go away while we look.
                    (status.st_mtime, status.st_size, Path(entry.path))
                    for entry in os.scandir(self._directory)
                    if "." not in entry.name and (status := entry.stat())
                )
                total = sum(size for _, size, _ in files)
                for _, size, path in files:
                    if total <= max_bytes:
                        break
                    if path.name != keep:
                        path.unlink(missing_ok=True)
                        total -= size
        except OSError as error:
            logger.warning("Artifacts that are not used could not be removed: %s", error)


def _follow(theirs: Future[None], stopped: Callable[[], bool]) -> None:
    """Returns when the download has ended well, or its own run no longer wants it; else raises what it came to."""
    while not theirs.done():
        if stopped():
            raise TransferStopped
        wait([theirs], LOOK_SECONDS)
    with suppress(TransferStopped):
        theirs.result()


def _unless(stopped: Callable[[], bool], pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if stopped():
            raise TransferStopped
        yield piece


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
