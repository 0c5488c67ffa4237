"""Programs and limits that are refused before a sandbox is built."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from workers.sandbox.errors import SandboxError
from workers.sandbox.validation import validate
from workers.sandbox.values import InputFile, Limits, Program

LIMITS = Limits(wall_seconds=1, memory_bytes=2**26, disk_bytes=10_000, cpus=1)


@pytest.fixture
def descriptor() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 4097)
        file.flush()
        yield file.fileno()


def _with_files(*files: InputFile) -> Program:
    return Program(("true",), {}, files)


def test_ordinary_program_is_valid(descriptor: int) -> None:
    validate(Program(("true", ""), {"A": ""}, (InputFile("a/b", descriptor),)), LIMITS)


@pytest.mark.parametrize(
    "program",
    [
        Program((), {}),
        Program(("",), {}),
        Program(("a\0b",), {}),
        Program(("a",), {"": "x"}),
        Program(("a",), {"A=B": "x"}),
        Program(("a",), {"A": "\0"}),
    ],
)
def test_bad_arguments_and_environment_are_refused(program: Program) -> None:
    with pytest.raises(SandboxError):
        validate(program, LIMITS)


@pytest.mark.parametrize("path", ["", ".", "/etc/passwd", "../x", "a/../../x", "out", "a\0b"])
def test_input_path_outside_work_is_refused(path: str, descriptor: int) -> None:
    with pytest.raises(SandboxError, match="inside /work"):
        validate(_with_files(InputFile(path, descriptor)), LIMITS)


def test_unreadable_input_file_is_refused(descriptor: int) -> None:
    with pytest.raises(SandboxError, match="same path"):
        validate(_with_files(InputFile("a", descriptor), InputFile("./a", descriptor)), LIMITS)
    with pytest.raises(SandboxError, match="raise the job's disk"):
        validate(_with_files(InputFile("a", descriptor), InputFile("b", descriptor)), LIMITS)
    with pytest.raises(SandboxError, match="not open"):
        validate(_with_files(InputFile("a", 99_999)), LIMITS)
    read, write = os.pipe()
    try:
        with pytest.raises(SandboxError, match="regular file"):
            validate(_with_files(InputFile("a", read)), LIMITS)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    "limits",
    [
        replace(LIMITS, wall_seconds=0),
        replace(LIMITS, cpus=0),
        replace(LIMITS, processes=0),
        replace(LIMITS, memory_bytes=1),
        replace(LIMITS, disk_bytes=0),
    ],
)
def test_useless_limits_are_refused(limits: Limits) -> None:
    with pytest.raises(SandboxError):
        validate(Program(("true",), {}), limits)
