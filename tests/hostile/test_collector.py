"""Output collection from random and changing trees: only plain files, exact and within the caps."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobs.domain import limits
from jobs.domain.text_validation import is_safe_path
from jobs.domain.worker_protocol import StoredOutput
from tests.hostile.conftest import WORKERS
from tests.hostile.trees import Kind, Node, expected, make, remove, trees
from workers.run import outputs
from workers.run.outputs import CollectedOutputs, collect_outputs

SECRET = b"what the worker keeps to itself"
fuzzed = settings(
    deadline=None,
    database=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@contextlib.contextmanager
def left_behind(nodes: Sequence[Node]) -> Iterator[int]:
    """Return a descriptor of `out` on a tmpfs, as in a sandbox, with a secret next to it."""
    base = Path(tempfile.mkdtemp(prefix="punctual-collector-", dir="/dev/shm"))
    try:
        (base / "secret").write_bytes(SECRET)
        (base / "out").mkdir()
        descriptor = os.open(base / "out", os.O_RDONLY | os.O_DIRECTORY)
        try:
            make(nodes, descriptor, base / "secret")
            yield descriptor
        finally:
            os.close(descriptor)
    finally:
        remove(base)


@pytest.fixture(scope="module", params=WORKERS, ids=["root" if uid == 0 else "user" for uid in WORKERS], autouse=True)
def _as_worker(request: pytest.FixtureRequest) -> Iterator[None]:
    """File modes do not restrict root, so as root also try as an ordinary user."""
    before = os.geteuid()
    os.seteuid(request.param)
    yield
    os.seteuid(before)


@contextlib.contextmanager
def not_for_ever(seconds: int = 30) -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError("the collector waits for something")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def collect(descriptor: int) -> tuple[dict[str, bytes], CollectedOutputs]:
    files: dict[str, bytes] = {}

    def store(output: StoredOutput, body: IO[bytes]) -> None:
        assert is_safe_path(output.name)
        assert output.name not in files
        body.seek(0)
        files[output.name] = body.read()

    with not_for_ever():
        collected = collect_outputs(descriptor, store)
    assert [output.name for output in collected.outputs] == list(files)
    assert len(collected.problems) <= outputs.MAX_PROBLEMS + 1
    assert all(problem.isprintable() and len(problem) < 400 for problem in collected.problems)
    return files, collected


@fuzzed
@given(trees(), st.sampled_from([2, 1000]), st.sampled_from([500, 2**30]))
@example([Node(b"link", Kind.SYMLINK, target=b"../secret"), Node(b"hard", Kind.HARD_LINK)], 1000, 2**30)
@example([Node(b"zero", Kind.DEVICE), Node(b"wait", Kind.FIFO), Node(b"result.json", Kind.FIFO)], 1000, 2**30)
def test_only_plain_files_are_collected(nodes: list[Node], most_files: int, most_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch, left_behind(nodes) as descriptor:
        patch.setattr(limits, "MAX_OUTPUT_FILES", most_files)
        patch.setattr(limits, "MAX_OUTPUT_BYTES", most_bytes)
        open_before = set(os.listdir("/proc/self/fd"))
        files, collected = collect(descriptor)
        assert set(os.listdir("/proc/self/fd")) == open_before
    wanted: dict[str, bytes] = {}
    for path, content in expected(nodes):
        if len(wanted) == most_files:
            break
        if sum(map(len, wanted.values())) + len(content) <= most_bytes:
            wanted[path] = content
    assert files == wanted
    assert [output.sha256 for output in collected.outputs] == [
        hashlib.sha256(content).hexdigest() for content in wanted.values()
    ]


CHANGES = ["swap", "shorten", "lengthen", "remove", "make"]


@settings(fuzzed, max_examples=30)
@given(trees(), st.lists(st.sampled_from(CHANGES), min_size=1, max_size=8))
def test_concurrent_changes_add_no_outputs(nodes: list[Node], changes: list[str]) -> None:
    """Nothing can change `out` after a run, as all its processes are gone; the collector must not rely on it."""
    nodes = [*nodes, Node(b"z-first", Kind.FILE, content=b"first"), Node(b"z-second", Kind.FILE, content=b"second")]
    with left_behind(nodes) as descriptor:
        stop = threading.Event()
        restless = threading.Thread(target=_change, args=(descriptor, changes, stop))
        restless.start()
        try:
            for _ in range(3):
                files, collected = collect(descriptor)
                assert SECRET not in files.values()
                assert not any(b"root:" in content for content in files.values())
                assert all(len(content) <= 3_000_000 for content in files.values())
                assert collected.result is None or "result.json" in files
        finally:
            stop.set()
            restless.join(10)


def _change(directory: int, changes: Sequence[str], stop: threading.Event) -> None:
    while not stop.is_set():
        for change in changes:
            with contextlib.suppress(OSError):
                if change == "swap":
                    os.symlink("../secret", "z-link", dir_fd=directory)
                    os.rename("z-link", "z-first", src_dir_fd=directory, dst_dir_fd=directory)
                elif change == "shorten":
                    _write(directory, b"")
                elif change == "lengthen":
                    _write(directory, b"x" * 100_000)
                elif change == "remove":
                    os.remove("z-second", dir_fd=directory)
                else:
                    os.mkfifo("z-fifo", dir_fd=directory)
                    os.rename("z-fifo", "z-second", src_dir_fd=directory, dst_dir_fd=directory)


def _write(directory: int, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open("z-second", flags, dir_fd=directory), "wb", buffering=0) as file:
        file.write(content)
