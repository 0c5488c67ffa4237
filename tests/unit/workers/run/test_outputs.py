"""Output collection from untrusted directories: only plain files, within the caps."""

from __future__ import annotations

import hashlib
import os
import pty
import socket
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from jobs.domain import limits
from jobs.domain.worker_protocol import StoredOutput
from workers.run import outputs
from workers.run.masking import Masker
from workers.run.outputs import CollectedOutputs, collect_outputs


class Bucket:
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def store(self, output: StoredOutput, body: IO[bytes]) -> None:
        body.seek(0)
        self.files[output.name] = body.read()
        assert hashlib.sha256(self.files[output.name]).hexdigest() == output.sha256
        assert len(self.files[output.name]) == output.size


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    directory.mkdir()
    return directory


@pytest.fixture(autouse=True)
def _no_descriptor_leaks() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) <= before


def collect(directory: Path, bucket: Bucket, masker: Masker | None = None) -> CollectedOutputs:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return collect_outputs(descriptor, bucket.store, masker)
    finally:
        os.close(descriptor)


def test_empty_directory_has_no_outputs(out: Path, bucket: Bucket) -> None:
    assert collect(out, bucket) == CollectedOutputs()


def test_files_are_collected_with_their_paths(out: Path, bucket: Bucket) -> None:
    (out / "sub" / "deeper").mkdir(parents=True)
    contents = {"a.txt": b"a", "empty": b"", "sub/b.bin": bytes(range(256)), "sub/deeper/c": b"c" * 3_000_000}
    for name, data in contents.items():
        (out / name).write_bytes(data)
    collected = collect(out, bucket)
    assert bucket.files == contents
    assert sorted(o.name for o in collected.outputs) == sorted(contents)
    assert collected.problems == []


def only_problem(out: Path, bucket: Bucket, name: str) -> None:
    (out / "good").write_bytes(b"good")
    collected = collect(out, bucket)
    assert bucket.files == {"good": b"good"}
    (problem,) = collected.problems
    assert name in problem
    assert "left out" in problem


@pytest.mark.parametrize("target", ["/etc/passwd", "good", "..", "/", "nowhere"])
def test_symlink_is_not_followed(out: Path, bucket: Bucket, target: str) -> None:
    (out / "link").symlink_to(target)
    only_problem(out, bucket, "link")


def test_fifo_is_skipped_without_blocking(out: Path, bucket: Bucket) -> None:
    os.mkfifo(out / "pipe")
    only_problem(out, bucket, "pipe")


def test_socket_is_skipped(out: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(out)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        only_problem(out, bucket, "socket")


def test_device_is_skipped(bucket: Bucket) -> None:
    """Terminals are devices that any user can open."""
    ends = pty.openpty()
    try:
        collected = collect(Path(os.ttyname(ends[1])).parent, bucket)
    finally:
        for end in ends:
            os.close(end)
    assert collected.outputs == []
    assert bucket.files == {}
    assert collected.problems


def test_hard_link_is_skipped(out: Path, bucket: Bucket) -> None:
    secret = out.parent / "secret"
    secret.write_bytes(b"of another user")
    os.link(secret, out / "linked")
    only_problem(out, bucket, "linked")


def nest(out: Path, depth: int) -> str:
    path = "/".join(["d"] * depth)
    (out / path).mkdir(parents=True)
    (out / path / "file").write_bytes(b"x")
    return f"{path}/file"


def test_deep_directory_is_read_to_the_limit(out: Path, bucket: Bucket) -> None:
    name = nest(out, outputs.MAX_DEPTH)
    assert collect(out, bucket).problems == []
    assert set(bucket.files) == {name}


def test_too_deep_directory_is_skipped(out: Path, bucket: Bucket) -> None:
    nest(out, outputs.MAX_DEPTH + 1)
    only_problem(out, bucket, "d/d/d")


def test_too_long_path_is_skipped(out: Path, bucket: Bucket) -> None:
    fits = ["x" * 250, "y" * 250, "z" * 250]
    directory = out
    for part in fits:
        directory /= part
        directory.mkdir()
    (directory / ("k" * 250)).write_bytes(b"kept")
    kept = "/".join([*fits, "k" * 250])
    assert len(kept) == 1003
    (directory / ("m" * 100)).mkdir()
    (directory / ("m" * 100) / ("l" * 250)).write_bytes(b"too long")
    collected = collect(out, bucket)
    assert set(bucket.files) == {kept}
    assert len(collected.problems) == 1


@pytest.mark.parametrize(
    "name", [b"new\nline", b"back\\slash", b"bell\x07", b"\xff\xfe", b"escape\x1b[31m", "rtl\u202e".encode()]
)
def test_unsafe_name_is_skipped_and_escaped_in_report(out: Path, bucket: Bucket, name: bytes) -> None:
    descriptor = os.open(os.path.join(os.fsencode(out), name), os.O_CREAT | os.O_WRONLY)
    os.close(descriptor)
    collected = collect(out, bucket)
    assert collected.outputs == []
    (problem,) = collected.problems
    assert problem.isprintable()
    assert problem.encode()


@pytest.mark.parametrize("name", ["with space", "ünïcödé", "-rf", ".hidden", "...", "a'b\"c", "名前"])
def test_unusual_safe_name_is_kept(out: Path, bucket: Bucket, name: str) -> None:
    (out / name).write_bytes(b"x")
    assert collect(out, bucket).problems == []
    assert set(bucket.files) == {name}


def test_number_of_files_is_capped(out: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OUTPUT_FILES", 3)
    (out / "d").mkdir()
    for number in range(10):
        (out / "d" / f"{number}").write_bytes(b"x")
    collected = collect(out, bucket)
    assert sorted(bucket.files) == ["d/0", "d/1", "d/2"]
    assert collected.problems == ["more than 3 output files; the rest was left out"]


def test_total_size_is_capped_and_smaller_files_still_fit(
    out: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OUTPUT_BYTES", 10)
    for name, size in {"a": 6, "b": 5, "c": 4}.items():
        (out / name).write_bytes(b"x" * size)
    collected = collect(out, bucket)
    assert set(bucket.files) == {"a", "c"}
    assert len(collected.problems) == 1
    assert collected.problems[0].startswith("b: ")


def test_sparse_file_counts_with_its_apparent_size(out: Path, bucket: Bucket) -> None:
    (out / "huge").touch()
    os.truncate(out / "huge", limits.MAX_OUTPUT_BYTES + 1)
    only_problem(out, bucket, "huge")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        (b'{"rows": 3}', {"rows": 3}),
        (b"[1, 2.5, null, true]", [1, 2.5, None, True]),
        (b'"text"', "text"),
        ('{"ü": "名"}'.encode(), {"ü": "名"}),
        (rb'"a backslash: \\u0000"', "a backslash: \\u0000"),
        (b"0", 0),
    ],
)
def test_valid_result_is_stored_and_also_an_output(out: Path, bucket: Bucket, text: bytes, result: object) -> None:
    (out / "result.json").write_bytes(text)
    collected = collect(out, bucket)
    assert (collected.result, collected.problems) == (result, [])
    assert set(bucket.files) == {"result.json"}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"not json",
        b"NaN",
        b'{"a": Infinity}',
        b"1e999",
        rb'"nul: \u0000"',
        rb'{"nul\u0000key": 1}',
        rb'[[{"deep": "\u0000"}]]',
        rb'"lone \ud800 surrogate"',
        b"\xff\xfe\xfd",
        b"[" * 10_000,
        b"[" * 100 + b"]" * 100,
        b"9" * 10_000,
        b"[" + b"1e308," * 1000 + b"0]",  # Postgres returns 309 digits for each
        b"[" + b"1e-300," * 1000 + b"0]",
    ],
)
def test_invalid_result_is_reported(out: Path, bucket: Bucket, text: bytes) -> None:
    (out / "result.json").write_bytes(text)
    collected = collect(out, bucket)
    assert collected.result is None
    assert collected.problems == ["result.json: not valid JSON; not taken as the result"]
    assert set(bucket.files) == {"result.json"}, "it is still stored as a file"


def test_oversized_result_is_reported(out: Path, bucket: Bucket) -> None:
    (out / "result.json").write_bytes(b'"' + b"x" * limits.MAX_RESULT_BYTES + b'"')
    collected = collect(out, bucket)
    assert collected.result is None
    assert "larger than" in collected.problems[0]


def test_result_in_subdirectory_is_an_ordinary_file(out: Path, bucket: Bucket) -> None:
    (out / "sub").mkdir()
    (out / "sub" / "result.json").write_bytes(b"1")
    assert collect(out, bucket).result is None


def test_storage_error_is_raised(out: Path) -> None:
    (out / "a").write_bytes(b"a")

    def fail(_output: StoredOutput, _body: IO[bytes]) -> None:
        raise ConnectionError

    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    with pytest.raises(ConnectionError):
        collect_outputs(descriptor, fail)
    os.close(descriptor)


def test_number_of_problems_is_capped(out: Path, bucket: Bucket) -> None:
    for number in range(100):
        (out / f"{number:03}\n{'x' * 240}").touch()
    (out / "good").write_bytes(b"good")
    collected = collect(out, bucket)
    assert bucket.files == {"good": b"good"}
    assert len(collected.problems) == outputs.MAX_PROBLEMS + 1
    assert collected.problems[-1] == f"and {100 - outputs.MAX_PROBLEMS} more"
    assert max(map(len, collected.problems)) < 300


def test_number_of_entries_is_capped(out: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_ENTRIES", 5)
    for name in ("a/b", "c/d", "e/f", "g"):
        (out / name).mkdir(parents=True)
    (out / "z").write_bytes(b"z")
    collected = collect(out, bucket)
    assert bucket.files == {}
    assert collected.problems == ["more than 5 files and directories; the rest was left out"]


def test_huge_directory_is_not_read_completely(out: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_ENTRIES", 5)
    for number in range(20_000):
        os.mkfifo(out / f"{number:0100}")
    tracemalloc.start()
    try:
        collected = collect(out, bucket)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert collected.problems[-1] == "more than 5 files and directories; the rest was left out"
    assert peak < 1_000_000, "the names alone are 2 MB"


@pytest.mark.parametrize("change", [b"", b"shorter", b"longer than it was"])
def test_file_that_changes_while_read_is_skipped(
    out: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, change: bytes
) -> None:
    (out / "file").write_bytes(b"as it was first")
    digest = outputs._hash_file

    def later(file: IO[bytes], size: int) -> str | None:
        (out / "file").write_bytes(change)
        return digest(file, size)

    monkeypatch.setattr(outputs, "_hash_file", later)
    collected = collect(out, bucket)
    assert (bucket.files, collected.outputs) == ({}, [])
    assert collected.problems == ["file: changed while it was read; left out"]


def test_file_with_secret_in_name_is_skipped_and_masked(out: Path, bucket: Bucket) -> None:
    (out / "in-password").mkdir()
    for name in ("a password", "in-password/file", "pass", "ü-password\x07"):
        (out / name).write_bytes(b"password")
    (out / "good").write_bytes(b"a password")
    collected = collect(out, bucket, Masker(["password"]))
    assert bucket.files == {"good": b"a password", "pass": b"password"}
    assert len(collected.problems) == 3
    assert "a ***: a secret in the name; left out" in collected.problems
    assert "password" not in "".join(collected.problems)


def test_secret_split_across_path_is_masked(out: Path, bucket: Bucket) -> None:
    (out / "a" / "b").mkdir(parents=True)
    (out / "a" / "b" / "c").write_bytes(b"")
    collected = collect(out, bucket, Masker(["/b/c"]))
    assert (bucket.files, collected.problems) == ({}, ["a***: a secret in the name; left out"])


def test_secrets_in_result_are_masked(out: Path, bucket: Bucket) -> None:
    (out / "result.json").write_text(r'{"password": ["\u0070assword", {"n": 1}], "x": "y"}')
    collected = collect(out, bucket, Masker(["password"]))
    assert (collected.result, collected.problems) == ({"***": ["***", {"n": 1}], "x": "y"}, [])


@pytest.mark.parametrize("value", ['{"user":"a","n":1}', '"user": "a"'])
def test_result_that_is_a_secret_is_refused(out: Path, bucket: Bucket, value: str) -> None:
    (out / "result.json").write_text('{"user" : "a", "n": 1}')
    collected = collect(out, bucket, Masker([value]))
    assert (collected.result, collected.problems) == (None, ["result.json: a secret in it; not taken as the result"])
