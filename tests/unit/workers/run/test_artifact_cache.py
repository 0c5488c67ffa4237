"""Artifact cache: only verified bytes are returned, downloads are shared, the size is bounded."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from jobs.domain.errors import ArtifactHashMismatch, StorageUnavailable
from tests.support.waiting import wait_for
from workers.errors import TransferStopped
from workers.run.artifact_cache import ArtifactCache


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Store:
    def __init__(self, *contents: bytes) -> None:
        self.contents = {sha(data): data for data in contents}
        self.fetched: list[str] = []

    def fetch(self, sha256: str) -> Iterator[bytes]:
        self.fetched.append(sha256)
        data = self.contents[sha256]
        for start in range(0, len(data), 3):
            yield data[start : start + 3]


def read(cache: ArtifactCache, data: bytes, store: Store) -> bytes:
    descriptor = cache.open(sha(data), len(data), store.fetch)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def cache(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache", 100)


@pytest.mark.parametrize("data", [b"echo hi\n", b"", bytes(range(256))])
def test_artifact_is_fetched_once(cache: ArtifactCache, data: bytes) -> None:
    store = Store(data)
    assert read(cache, data, store) == data
    assert read(cache, data, store) == data
    assert store.fetched == [sha(data)]


def test_new_process_uses_cached_artifact(tmp_path: Path) -> None:
    store = Store(b"kept")
    read(ArtifactCache(tmp_path, 100), b"kept", store)
    assert read(ArtifactCache(tmp_path, 100), b"kept", store) == b"kept"
    assert len(store.fetched) == 1


@pytest.mark.parametrize("served", [b"evil", b"goo", b"good+", b""])
def test_wrong_bytes_are_refused_and_removed(cache: ArtifactCache, tmp_path: Path, served: bytes) -> None:
    store = Store()
    store.contents[sha(b"good")] = served
    with pytest.raises(ArtifactHashMismatch):
        cache.open(sha(b"good"), 4, store.fetch)
    assert names(tmp_path / "cache") == set()
    store.contents[sha(b"good")] = b"good"
    assert read(cache, b"good", store) == b"good", "the next fetch succeeds"


def test_download_stops_at_announced_size(cache: ArtifactCache) -> None:
    taken: list[int] = []

    def endless(_sha256: str) -> Iterator[bytes]:
        for number in range(1000):
            taken.append(number)
            yield b"x" * 10

    with pytest.raises(ArtifactHashMismatch):
        cache.open(sha(b"x" * 20), 20, endless)
    assert len(taken) == 3


def test_interrupted_fetch_leaves_nothing(cache: ArtifactCache, tmp_path: Path) -> None:
    def broken(_sha256: str) -> Iterator[bytes]:
        yield b"go"
        raise StorageUnavailable

    with pytest.raises(StorageUnavailable):
        cache.open(sha(b"good"), 4, broken)
    assert names(tmp_path / "cache") == set()


def test_partial_download_is_removed_at_start(tmp_path: Path) -> None:
    (tmp_path / "tmpabc.part").write_bytes(b"half")
    ArtifactCache(tmp_path, 100)
    assert names(tmp_path) == set()


def test_truncated_file_is_fetched_again(cache: ArtifactCache, tmp_path: Path) -> None:
    store = Store(b"whole")
    read(cache, b"whole", store)
    (tmp_path / "cache" / sha(b"whole")).write_bytes(b"")
    assert read(cache, b"whole", store) == b"whole"
    assert len(store.fetched) == 2


def test_symlink_with_the_right_name_is_not_followed(cache: ArtifactCache, tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(b"evil")
    (tmp_path / "cache" / sha(b"good")).symlink_to(tmp_path / "evil")
    with pytest.raises(OSError, match="symbolic links"):
        cache.open(sha(b"good"), 4, Store(b"good").fetch)


def test_least_recently_used_is_evicted_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, 10)
    old, older, new = b"old!", b"oldr", b"new!"
    store = Store(old, older, new)
    for data in (old, older):
        read(cache, data, store)
    os.utime(tmp_path / sha(older), (1, 1))
    os.utime(tmp_path / sha(old), (2, 2))
    read(cache, new, store)
    assert names(tmp_path) == {sha(old), sha(new)}


def test_used_file_is_kept(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, 10)
    first, second, third = b"1111", b"2222", b"3333"
    store = Store(first, second, third)
    for data in (first, second):
        read(cache, data, store)
        os.utime(tmp_path / sha(data), (1, 1))
    read(cache, first, store)
    read(cache, third, store)
    assert names(tmp_path) == {sha(first), sha(third)}


def test_current_file_is_kept_even_if_too_large(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, 3)
    store = Store(b"larger than that")
    assert read(cache, b"larger than that", store) == b"larger than that"
    assert names(tmp_path) == {sha(b"larger than that")}


def test_descriptor_outlives_eviction(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, 5)
    store = Store(b"first", b"other")
    descriptor = cache.open(sha(b"first"), 5, store.fetch)
    os.utime(tmp_path / sha(b"first"), (1, 1))
    read(cache, b"other", store)
    assert names(tmp_path) == {sha(b"other")}
    with os.fdopen(descriptor, "rb") as file:
        assert file.read() == b"first"


def test_vanishing_partial_file_does_not_break_eviction(tmp_path: Path) -> None:
    """Another thread's download has just finished: its partial file is listed but gone."""
    cache = ArtifactCache(tmp_path, 100)
    (tmp_path / "gone.part").symlink_to(tmp_path / "nowhere")
    assert read(cache, b"data", Store(b"data")) == b"data"


def test_concurrent_opens_fetch_once(cache: ArtifactCache) -> None:
    store = Store(b"wanted by all")
    barrier = threading.Barrier(8)

    def get() -> bytes:
        barrier.wait(10)
        return read(cache, b"wanted by all", store)

    with ThreadPoolExecutor(8) as pool:
        answers = [future.result(10) for future in [pool.submit(get) for _ in range(8)]]
    assert answers == [b"wanted by all"] * 8
    assert len(store.fetched) == 1


def test_concurrent_evictions_do_not_lose_files(tmp_path: Path) -> None:
    contents = [b"%04d" % n for n in range(40)]
    cache, store = ArtifactCache(tmp_path, 4), Store(*contents)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda data: read(cache, data, store), contents * 5)) == contents * 5


def test_cache_directory_is_private(tmp_path: Path) -> None:
    ArtifactCache(tmp_path / "deep" / "cache", 1)
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "A" * 64, "0" * 63, "0" * 64 + "\n", ""])
def test_name_that_is_not_a_hash_is_refused(tmp_path: Path, name: str) -> None:
    store = Store()
    with pytest.raises(ArtifactHashMismatch):
        ArtifactCache(tmp_path, 100).open(name, 1, store.fetch)
    assert not store.fetched


def test_waiters_share_a_failed_download(cache: ArtifactCache) -> None:
    """Otherwise each waiter would wait for an unavailable store, one after the other."""
    asked: list[str] = []
    waiters, checks, all_wait = 7, count(), threading.Event()

    def broken(sha256: str) -> Iterator[bytes]:
        asked.append(sha256)
        yield b"g"
        assert all_wait.wait(10)
        raise StorageUnavailable("away")

    def stopped() -> bool:
        """Every waiter checks for a stop before it waits; the downloading thread checks once, at its piece."""
        if next(checks) >= waiters:
            all_wait.set()
        return False

    def get() -> str:
        with pytest.raises(StorageUnavailable) as raised:
            cache.open(sha(b"good"), 4, broken, stopped)
        return str(raised.value)

    with ThreadPoolExecutor(waiters + 1) as pool:
        first = pool.submit(get)
        wait_for(lambda: asked, "the download begins")
        others = [pool.submit(get) for _ in range(waiters)]
        assert {each.result(10) for each in (first, *others)} == {"away"}
    assert len(asked) == 1
    assert read(cache, b"good", Store(b"good")) == b"good", "the next download succeeds"


def test_stopped_download_is_taken_over_by_a_waiter(cache: ArtifactCache) -> None:
    begun, stop = threading.Event(), threading.Event()
    store = Store(b"good")

    def slow(sha256: str) -> Iterator[bytes]:
        begun.set()
        assert stop.wait(10)
        yield from store.fetch(sha256)

    def lead() -> None:
        with pytest.raises(TransferStopped):
            cache.open(sha(b"good"), 4, slow, stop.is_set)

    def stopped() -> bool:
        stop.set()
        return False

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(lead)
        assert begun.wait(10)
        descriptor = pool.submit(cache.open, sha(b"good"), 4, store.fetch, stopped).result(10)
        leader.result(10)
    with os.fdopen(descriptor, "rb") as file:
        assert file.read() == b"good"


def test_stopped_run_does_not_wait_for_a_download(cache: ArtifactCache) -> None:
    begun, go_on = threading.Event(), threading.Event()
    store = Store(b"good")

    def slow(sha256: str) -> Iterator[bytes]:
        begun.set()
        assert go_on.wait(10)
        yield from store.fetch(sha256)

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(cache.open, sha(b"good"), 4, slow)
        assert begun.wait(10)
        with pytest.raises(TransferStopped):
            cache.open(sha(b"good"), 4, store.fetch, lambda: True)
        go_on.set()
        os.close(leader.result(10))


def test_finished_download_is_forgotten(cache: ArtifactCache) -> None:
    def broken(_sha256: str) -> Iterator[bytes]:
        yield b"go"
        raise StorageUnavailable

    store = Store(b"good")
    for _ in range(2):
        read(cache, b"good", store)
    with pytest.raises(StorageUnavailable):
        cache.open(sha(b"other"), 5, broken)
    assert cache._fetching == {}


def test_deleted_directory_is_recreated(cache: ArtifactCache, tmp_path: Path) -> None:
    store = Store(b"good")
    read(cache, b"good", store)
    shutil.rmtree(tmp_path / "cache")
    assert read(cache, b"good", store) == b"good"
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_full_disk_evicts_the_cache(cache: ArtifactCache, tmp_path: Path) -> None:
    def full(_sha256: str) -> Iterator[bytes]:
        yield b"go"
        raise OSError(errno.ENOSPC, "No space left on device")

    read(cache, b"kept", Store(b"kept"))
    with pytest.raises(OSError, match="No space"):
        cache.open(sha(b"good"), 4, full)
    assert names(tmp_path / "cache") == set()
