"""Runtimes are guessed from files, and programs and inputs are uploaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from punctual_cli.commands.job_options import parse_input_options
from punctual_client.errors import UsageError
from punctual_client.programs import MAX_INLINE_BYTES, Runtime, guess_runtime, prepare_inputs, prepare_program
from tests.support.terminal import run_on_terminal
from tests.unit.punctual_cli.server import RecordingServer


@pytest.mark.parametrize(
    ("name", "head", "runtime"),
    [
        ("a.sh", b"echo", Runtime.BASH),
        ("a.PY", b"print()", Runtime.PYTHON),
        ("a.js", b"console.log()", Runtime.NODE),
        ("a.R", b"print(1)", Runtime.R),
        ("A.java", b"class A {}", Runtime.JAVA),
        ("a.jar", b"PK\x03\x04", Runtime.JAVA),
        ("a", b"#!/bin/sh\n", Runtime.SH),
        ("a.sh", b"#!/bin/sh\n", Runtime.SH),
        ("a.py", b"#!/usr/bin/env -S unknown\n", Runtime.PYTHON),
        ("a", b"#!/usr/bin/perl -w\n", Runtime.PERL),
        ("a", b"#!/usr/bin/env node\n", Runtime.NODE),
        ("a", b"#!/usr/bin/Rscript --vanilla\n", Runtime.R),
        ("a", b"#!/usr/bin/lua5.4\n", Runtime.LUA),
        ("a", b"#!/usr/bin/env bash\n", Runtime.BASH),
        ("a", b"#! /usr/bin/env -S python3.11 -u\n", Runtime.PYTHON),
        ("a", b"#!/opt/x/bin/python3\n", Runtime.PYTHON),
        ("a", b"\x7fELF\x02\x01", Runtime.BINARY),
        ("a.sh", b"\x7fELF\x02\x01", Runtime.BINARY),
    ],
)
def test_the_runtime_is_guessed(name: str, head: bytes, runtime: Runtime) -> None:
    assert guess_runtime(Path(name), head) is runtime


@pytest.mark.parametrize(
    "head", [b"#!/usr/bin/java --source 17\n", b"hello", b"#!/usr/bin/fish\n", b"#!/bin/shiny\n", b"MZ"]
)
def test_an_unknown_runtime_must_be_named(head: bytes) -> None:
    with pytest.raises(UsageError, match="--runtime"):
        guess_runtime(Path("a"), head)


def test_a_small_script_travels_inside_the_job(tmp_path: Path, server: RecordingServer) -> None:
    script = tmp_path / "a.sh"
    script.write_text("echo ü\n")
    assert prepare_program(server.client, script, None) == {"runtime": "bash", "script": "echo ü\n"}
    assert server.requests == []


@pytest.mark.parametrize("content", [b"#" * (MAX_INLINE_BYTES + 1), b"echo \xff\n", b"echo \0\n"])
def test_binary_and_large_files_are_uploaded(tmp_path: Path, server: RecordingServer, content: bytes) -> None:
    script = tmp_path / "a.sh"
    script.write_bytes(content)
    server.answer("POST", "/api/v1/artifacts", {"id": "A", "status": "announced", "upload": server.upload("/store/A")})
    server.answer("PUT", "/store/A", {})
    server.answer("POST", "/api/v1/artifacts/A/complete", {"id": "A", "status": "stored"})

    assert prepare_program(server.client, script, None) == {"runtime": "bash", "artifact": "A"}

    stored = server.requests[1]
    assert stored.body == content
    assert stored.headers["x-pinned"] == "yes"
    assert stored.headers["content-length"] == str(len(content))
    assert "authorization" not in stored.headers


def test_an_artifact_the_server_has_is_not_sent_again(tmp_path: Path, server: RecordingServer) -> None:
    program = tmp_path / "a"
    program.write_bytes(b"\x7fELF")
    server.answer("POST", "/api/v1/artifacts", {"id": "A", "status": "stored", "upload": None})
    assert prepare_program(server.client, program, None) == {"runtime": "binary", "artifact": "A"}
    assert len(server.requests) == 1


def test_a_text_for_standard_input_travels_inside_and_files_are_uploaded(
    tmp_path: Path, server: RecordingServer
) -> None:
    (tmp_path / "a.csv").write_text("a;b\n")
    server.answer("POST", "/api/v1/artifacts", {"id": "A", "status": "stored", "upload": None})
    given = prepare_inputs(server.client, tmp_path / "a.csv", [("data/b", f"{tmp_path}/a.csv")])
    assert given == {"stdin": "a;b\n", "inputs": [{"path": "data/b", "artifact": "A"}]}
    (tmp_path / "a.csv").write_bytes(b"\0")
    assert prepare_inputs(server.client, tmp_path / "a.csv", None) == {"stdin_artifact": "A"}
    assert prepare_inputs(server.client, None, None) == {}
    assert prepare_inputs(server.client, None, None, no_stdin=True, no_inputs=True) == {"stdin": None, "inputs": []}


@pytest.mark.parametrize("word", ["a.csv", "=a.csv", "a.csv=", "="])
def test_an_input_is_a_path_and_a_file(word: str) -> None:
    with pytest.raises(UsageError, match="PATH=FILE"):
        parse_input_options(None, ["a=b", word])


@pytest.mark.parametrize("name", ["stdin", "inputs"])
def test_contradicting_input_options_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"--no-{name}"):
        parse_input_options(Path("a"), ["a=b"], no_stdin=name == "stdin", no_inputs=name == "inputs")


BAR = """
from punctual_cli.output.progress_bars import UPLOAD_PROGRESS
with UPLOAD_PROGRESS("b\\x1b[2Jig", {size}) as advance:
    advance({size} // 2)
"""


@pytest.mark.parametrize(("megabytes", "seen"), [(4, True), (0.5, False)])
def test_large_files_show_a_progress_bar_on_a_terminal(megabytes: float, seen: bool) -> None:
    program = BAR.format(size=int(megabytes * 1024 * 1024))
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "NO_COLOR": ""}
    ended, shown = run_on_terminal([sys.executable, "-c", program], "stderr", environment=environment)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ("Uploading b\\x1b[2Jig" in shown) == seen
    assert ("2.1/4.2 MB" in shown) == seen


@pytest.mark.parametrize("make", ["missing", "folder", "empty"])
def test_a_file_that_cannot_be_submitted_is_named(tmp_path: Path, server: RecordingServer, make: str) -> None:
    path = tmp_path / "a.sh"
    if make == "folder":
        path.mkdir()
    elif make == "empty":
        path.touch()
    with pytest.raises(UsageError, match=r"a\.sh (cannot be read|is empty)"):
        prepare_program(server.client, path, None)
    for stdin, inputs in ((path, None), (None, [("x", str(path))])):
        with pytest.raises(UsageError, match=r"a\.sh (cannot be read|is empty)"):
            prepare_inputs(server.client, stdin, inputs)
