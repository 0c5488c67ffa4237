"""Standard input and files of a program: complete, and the worker's originals stay unchanged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.driving import MEBIBYTE, PATH, execute, limits, words
from workers.sandbox.host import Host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import InputFile, Program

WORDS = b"one\ntwo\n" * 10_000


@pytest.fixture(scope="module")
def bare_sandbox(host: Host) -> Iterator[Sandbox]:
    sandbox = Sandbox(host)
    yield sandbox
    sandbox.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "words"
    path.write_bytes(WORDS)
    path.chmod(0o666)  # as if the program owned it
    opened = os.open(path, os.O_RDONLY)
    os.lseek(opened, 5, os.SEEK_SET)
    yield opened
    os.close(opened)


def run(sandbox: Sandbox, script: str, descriptor: int) -> bytes:
    files = (InputFile("data/deep/words", descriptor), InputFile("words", descriptor))
    result = execute(sandbox, Program(("/bin/sh", "-c", script), PATH, files, descriptor))
    assert result.outcome.exit_code == 0, result.stderr
    return result.stdout


def test_stdin_is_read_from_the_beginning(bare_sandbox: Sandbox, descriptor: int) -> None:
    for script in ("cat", "cat /dev/stdin", "cat words", "cat data/deep/words", "cd data/deep && mv words w && cat w"):
        assert run(bare_sandbox, script, descriptor) == WORDS, script


def test_writes_to_stdin_do_not_reach_the_original(bare_sandbox: Sandbox, descriptor: int) -> None:
    script = """
        for way in /dev/stdin /proc/self/fd/0; do (echo x >$way); (echo x >>$way); (echo x 1<>$way); done
        chmod 777 /dev/stdin; truncate -s 0 /dev/stdin
        echo x >words; echo x >data/deep/words; cat
    """
    assert run(bare_sandbox, script, descriptor) == WORDS
    assert os.pread(descriptor, len(WORDS) + 1, 0) == WORDS


def test_copied_stdin_reduces_writable_space(bare_sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(3 * MEBIBYTE))
    path.chmod(0o666)
    opened = os.open(path, os.O_RDONLY)
    program = Program(("/bin/sh", "-c", "wc -c; stat -f -c '%b %S' /work"), PATH, stdin=opened)
    try:
        read, blocks, block_size = map(int, words(execute(bare_sandbox, program, limits(disk=4 * MEBIBYTE)).stdout))
    finally:
        os.close(opened)
    assert read == 3 * MEBIBYTE
    assert blocks * block_size == MEBIBYTE


def test_missing_stdin_is_empty(bare_sandbox: Sandbox) -> None:
    result = execute(bare_sandbox, "cat; echo end")
    assert result.stdout == b"end\n"
