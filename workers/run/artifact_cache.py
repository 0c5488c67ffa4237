"""Cache of artifacts on the worker's disk, named by their SHA-256.

A file gets its name only after its hash was verified, so a partial download is never executed. Concurrent requests for
a hash share one download and its result.
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

from jobs.domain.errors import ArtifactHashMismatch
from workers.errors import TransferStopped

logger = logging.getLogger(__name__)

Fetch = Callable[[str], Iterator[bytes]]

SHA256_PATTERN = re.compile("[0-9a-f]{64}")
FILE_MODE = 0o444  # a run that reads the file as its standard input must not write to it
STOP_CHECK_SECONDS = 0.2  # while waiting for another run's download


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
        """Return a descriptor of the verified artifact; it outlives an eviction, and the caller closes it.

        Raise TransferStopped once `stopped` returns True.
        """
        if not SHA256_PATTERN.fullmatch(sha256):
            # It becomes a path.
            raise ArtifactHashMismatch("The program is not named by a hash.")
        path = self._directory / sha256
        while True:
            with self._lock:
                # Under the lock, so that a download that has just finished is not repeated.
                descriptor = _open_complete(path, size)
                if descriptor is not None:
                    return descriptor
                running = self._fetching.get(sha256)
                if running is None:
                    own = self._fetching[sha256] = Future[None]()
            if running is None:
                return self._download_and_share(own, path, sha256, size, lambda: _stop_when(stopped, fetch(sha256)))
            _wait_for_download(running, stopped)

    def _download_and_share(
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
        # The directory may have been deleted.
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
                # Otherwise a power cut could leave the name without the bytes.
                os.fsync(part.fileno())
            if received != size or digest.hexdigest() != sha256:
                raise ArtifactHashMismatch
            os.chmod(name, FILE_MODE)
            # Opened before the rename: an eviction may remove the file right after it.
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.rename(name, path)
        except BaseException as error:
            Path(name).unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                # Free the disk for the next try.
                self._evict(0)
            raise
        return descriptor

    def _evict(self, max_bytes: int, keep: str = "") -> None:
        """Remove the least recently used files until the rest fits; errors are only logged."""
        try:
            with self._lock:
                files = sorted(
                    # Downloads have a dot in their name and may vanish at any time.
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
            logger.warning("Unused artifacts could not be removed: %s", error)


def _wait_for_download(running: Future[None], stopped: Callable[[], bool]) -> None:
    """Wait until another run's download succeeds or is stopped; raise its error if it fails."""
    while not running.done():
        if stopped():
            raise TransferStopped
        wait([running], STOP_CHECK_SECONDS)
    with suppress(TransferStopped):
        running.result()


def _stop_when(stopped: Callable[[], bool], pieces: Iterator[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if stopped():
            raise TransferStopped
        yield piece


def _open_complete(path: Path, size: int) -> int | None:
    """Open a cached file; None if it is missing, or truncated by a crash of the machine."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    if os.fstat(descriptor).st_size != size:
        os.close(descriptor)
        return None
    os.utime(descriptor)
    return descriptor
