"""What a worker learns about its host before it runs anything."""

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from tests.integration.sandbox.conftest import WHEEL_BWRAP
from tests.integration.sandbox.driving import MEBIBYTE, execute, limits
from tests.worker_process import copy_of_bwrap
from workers.sandbox import (
    Host,
    InputFile,
    Program,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    command_for,
    detect_host,
    find_bwrap,
    find_runtimes,
)


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_host_is_never_used_as_root(host: Host) -> None:
    assert host.cgroup_mode in ("v1", "v2", "none")
    assert host.drop_uid == (65534 if os.geteuid() == 0 else None)
    assert host.version.count(".") == 2


def test_bubblewrap_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = _script(tmp_path / "good", "echo bubblewrap 0.11.0")
    monkeypatch.setenv("PUNCTUAL_BWRAP", str(good))
    assert find_bwrap() == good
    for text in ("echo bubblewrap 0.6.1", "echo something else", "exit 1"):
        monkeypatch.setenv("PUNCTUAL_BWRAP", str(_script(tmp_path / "bad", text)))
        with pytest.raises(SandboxUnavailable, match="correct or unset it"):
            find_bwrap()


def test_a_bubblewrap_that_builds_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_bytes(Path("/bin/true").read_bytes())
    fake.chmod(0o755)
    host = Host(fake, "0.11.0", None, None)
    with pytest.raises(SandboxError, match="could not be built"):
        execute(Sandbox(host), "true")
    monkeypatch.setenv("PUNCTUAL_BWRAP", str(tmp_path / "nothing"))
    with pytest.raises(SandboxUnavailable):
        detect_host()


@pytest.mark.parametrize("share", [True, False])
def test_a_checkout_in_a_closed_directory_works(tmp_path: Path, host: Host, *, share: bool) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    bwrap = copy_of_bwrap(WHEEL_BWRAP, closed)
    sandbox = Sandbox(dataclasses.replace(host, bwrap=bwrap, slots_share=share))
    seen = execute(sandbox, "ls -A /tmp; ls /proc/self/fd; env").stdout.decode().split()
    assert sorted(seen) == ["0", "1", "2", "3", "4", "PATH=/usr/bin:/bin", "PWD=/work"]
    sandbox.close()


def test_runtimes_really_run(host: Host, tmp_path: Path) -> None:
    interpreters = find_runtimes(host)
    assert set(interpreters) == {"bash", "binary", "python"}
    assert interpreters["python"].version.startswith("3.")
    assert interpreters["python"].path.startswith("/usr/")
    sandbox = Sandbox(host)
    programs = {
        "bash": b'[[ -n "$BASH_VERSION" ]] && echo "$1"',
        "python": b"import sys; print(sys.argv[1])",
        "binary": Path("/bin/echo").read_bytes(),
    }
    for runtime, content in programs.items():
        (tmp_path / runtime).write_bytes(content)
        with open(tmp_path / runtime, "rb") as file:
            program = Program(
                command_for(runtime, interpreters, "program", ["a b"]),
                {},
                (InputFile("program", file.fileno(), executable=runtime == "binary"),),
            )
            assert execute(sandbox, program, limits(disk=8 * MEBIBYTE)).stdout == b"a b\n"
    sandbox.close()
    with pytest.raises(SandboxError, match="no runtime 'cobol'"):
        command_for("cobol", interpreters, "program", [])
