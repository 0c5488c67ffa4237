"""What a program is given: its standard input and its files are all there, and the worker's own stay as they are."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.sandbox.driving import PATH, execute
from workers.sandbox import Host, InputFile, Program, Sandbox

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
    path.chmod(0o666)  # as open to the program as if it were its own
    opened = os.open(path, os.O_RDONLY)
    os.lseek(opened, 5, os.SEEK_SET)
    yield opened
    os.close(opened)


def run(sandbox: Sandbox, script: str, descriptor: int) -> bytes:
    files = (InputFile("data/deep/words", descriptor), InputFile("words", descriptor))
    result = execute(sandbox, Program(("/bin/sh", "-c", script), PATH, files, descriptor))
    assert result.outcome.exit_code == 0, result.stderr
    return result.stdout


def test_all_of_it_is_read_from_the_beginning(bare_sandbox: Sandbox, descriptor: int) -> None:
    for script in ("cat", "cat /dev/stdin", "cat words", "cat data/deep/words", "cd data/deep && mv words w && cat w"):
        assert run(bare_sandbox, script, descriptor) == WORDS, script


def test_nothing_that_it_writes_reaches_the_original(bare_sandbox: Sandbox, descriptor: int) -> None:
    script = """
        for way in /dev/stdin /proc/self/fd/0; do (echo x >$way); (echo x >>$way); (echo x 1<>$way); done
        chmod 777 /dev/stdin; truncate -s 0 /dev/stdin
        echo x >words; echo x >data/deep/words; cat
    """
    assert run(bare_sandbox, script, descriptor) == WORDS
    assert os.pread(descriptor, len(WORDS) + 1, 0) == WORDS


def test_without_any_there_is_nothing_to_read(bare_sandbox: Sandbox) -> None:
    result = execute(bare_sandbox, "cat; echo end")
    assert result.stdout == b"end\n"
