"""Table of runtimes: the same on server, worker and CLI, with the right file names and arguments."""

import re
from pathlib import Path

import pytest

from jobs.domain.job_spec import RUNTIMES as ACCEPTED
from punctual_client.programs import Runtime as CliRuntime
from workers.sandbox.errors import SandboxError
from workers.sandbox.runtimes import BINARY, RUNTIMES, Interpreter, build_command, parse_version
from workers.sandbox.values import Limits

LIMITS = Limits(wall_seconds=1, memory_bytes=100 * 1024 * 1024, disk_bytes=4096, cpus=1.5)
ALL = {name: Interpreter(name, f"/usr/bin/{name}", "1") for name in (*RUNTIMES, BINARY)}


def test_server_worker_and_cli_have_the_same_runtimes() -> None:
    assert set(ACCEPTED) == {runtime.value for runtime in CliRuntime} == {*RUNTIMES, BINARY}


def test_documented_runtimes_match_the_table() -> None:
    text = (Path(__file__).parents[4] / "docs/programs.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (`program[^|]*) \|", text, re.MULTILINE))
    names = {name: f"`program{runtime.suffix}`" for name, runtime in RUNTIMES.items()}
    assert rows == names | {BINARY: "`program`", "java": "`program.java` or `program.jar`"}


@pytest.mark.parametrize("runtime", [*RUNTIMES, BINARY])
def test_arguments_are_filled_in_and_the_programs_own_come_last(runtime: str) -> None:
    command = build_command(runtime, ALL, ["{a}", "b"], head=b"", limits=LIMITS)
    assert command.argv[-3:] == (f"/work/{command.file}", "{a}", "b")
    assert not any("{" in argument for argument in command.argv[:-2])
    assert command.file.partition(".")[0] == "program"


def test_heap_fits_into_memory_limit() -> None:
    assert "--max-old-space-size=60" in build_command("node", ALL, [], head=b"", limits=LIMITS).argv
    java = build_command("java", ALL, [], head=b"", limits=LIMITS).argv
    assert {"-XX:MaxRAM=100m", "-XX:ActiveProcessorCount=2"} <= set(java)


def test_jar_is_recognised_by_its_first_bytes() -> None:
    jar = build_command("java", ALL, [], head=b"PK\x03\x04\x14", limits=LIMITS)
    assert jar.argv[-2:] == ("-jar", "/work/program.jar")
    assert build_command("java", ALL, [], head=b"class A", limits=LIMITS).argv[-1] == "/work/program.java"
    assert build_command("python", ALL, [], head=b"PK\x03\x04", limits=LIMITS).file == "program.py"


def test_missing_runtime_is_named() -> None:
    with pytest.raises(SandboxError, match="no runtime 'cobol'"):
        build_command("cobol", ALL, [], head=b"", limits=LIMITS)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("5.2.15(1)-release\n", "5.2.15"),
        ("javac 17.0.15\n", "17.0.15"),
        ("Lua 5.4.6  Copyright (C) 1994\n", "5.4.6"),
        ("deno 2.1.4 (stable, release)\nv8 13.0\n", "2.1.4"),
        ("javac 21\n", "javac 21"),
        ("dash\n", "dash"),
        ("", ""),
        ("x" * 1000, "x" * 60),
    ],
)
def test_version_is_shortened(printed: str, version: str) -> None:
    assert parse_version(printed) == version
