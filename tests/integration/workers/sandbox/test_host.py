"""Detection of the host's isolation."""

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from tests.integration.workers.sandbox.conftest import WHEEL_BWRAP
from tests.support.driving import execute
from tests.support.worker_process import copy_of_bwrap
from workers.sandbox.bubblewrap.command_line import find_bwrap
from workers.sandbox.errors import SandboxError, SandboxUnavailable
from workers.sandbox.host import Host, detect_host
from workers.sandbox.sandbox import Sandbox


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_programs_never_run_as_host_root(host: Host) -> None:
    assert host.cgroup_mode in ("v1", "v2", "none")
    assert (host.users is None) == (os.geteuid() != 0)
    assert host.version.count(".") == 2


def test_bubblewrap_path_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = _script(tmp_path / "good", "echo bubblewrap 0.11.0")
    monkeypatch.setenv("PUNCTUAL_BWRAP", str(good))
    assert find_bwrap() == good
    for text in ("echo bubblewrap 0.6.1", "echo something else", "exit 1"):
        monkeypatch.setenv("PUNCTUAL_BWRAP", str(_script(tmp_path / "bad", text)))
        with pytest.raises(SandboxUnavailable, match="correct or unset it"):
            find_bwrap()


def test_distributions_bubblewrap_is_preferred_to_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets security updates; the wheel does not."""
    monkeypatch.delenv("PUNCTUAL_BWRAP", raising=False)
    _script(tmp_path / "bwrap", "echo bubblewrap 0.11.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_bwrap()
    assert found in {tmp_path / "bwrap", Path("/usr/bin/bwrap"), Path("/usr/local/bin/bwrap"), Path("/bin/bwrap")}
    if found.parent == tmp_path:
        _script(tmp_path / "bwrap", "echo bubblewrap 0.6.1")
        assert find_bwrap() == WHEEL_BWRAP, "the distribution's is too old"


def test_broken_bubblewrap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_bytes(Path("/bin/true").read_bytes())
    fake.chmod(0o755)
    host = Host(fake, "0.11.0", None)
    with pytest.raises(SandboxError, match="could not be built"):
        execute(Sandbox(host), "true")
    monkeypatch.setenv("PUNCTUAL_BWRAP", str(tmp_path / "nothing"))
    with pytest.raises(SandboxUnavailable):
        detect_host()


@pytest.mark.parametrize("share", [True, False])
def test_checkout_in_unreadable_directory_works(tmp_path: Path, host: Host, *, share: bool) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    bwrap = copy_of_bwrap(WHEEL_BWRAP, closed)
    sandbox = Sandbox(dataclasses.replace(host, bwrap=bwrap, slots_share=share))
    seen = execute(sandbox, "ls -A /tmp; ls /proc/self/fd; env").stdout.decode().split()
    assert sorted(seen) == ["0", "1", "2", "3", "4", "PATH=/usr/bin:/bin", "PWD=/work"]
    sandbox.close()
