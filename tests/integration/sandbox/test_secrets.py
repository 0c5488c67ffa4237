"""A run gets its secrets, nobody who looks at the host's processes does, and nothing that it says of them goes on."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from jobs.protocol import Chunk, Claimed, Hold, Progress, Registration
from jobs.states import Reason
from tests.integration.sandbox.driving import PATH, execute
from tests.unit.workers.control_plane import MemoryControlPlane
from workers.artifact_cache import ArtifactCache
from workers.guardian import Guardian
from workers.guardian_process import now
from workers.held_runs import HeldRuns
from workers.log_stream import LogFlusher
from workers.run import Equipment, run_attempt
from workers.sandbox import EndReason, Host, InputFile, Program, Run, Sandbox, find_runtimes, memory_file

ENV, FILE = "env-é-3f9c1a77", "file\nof two-lines-81b2\n"
SLEEPS = """
[ "$(stat -c '%a %u' keys/key)" = "400 $(id -u)" ] || exit 1
[ "$(cat keys/key)" = "$KEY" ] || exit 2
(echo x >keys/key) 2>/dev/null && exit 3
echo asleep; sleep 60
"""
LEAKS = """
[ "$(echo -n "$KEY" | sha256sum)" = "$1  -" ] || exit 1
[ "$(sha256sum <keys/key)" = "$2  -" ] || exit 2
[ "$(stat -c %a keys/key)" = 400 ] || exit 3
echo "env $KEY."; cat keys/key >&2
echo -n "half ${KEY:0:6}"; echo 10 >&3; sleep 0.3; echo "${KEY:6} whole"
echo -n "$KEY" | base64
echo "50 at $KEY" >&3
echo "{\\"$KEY\\": \\"$KEY\\"}" >out/result.json
touch "out/$KEY" out/kept
"""


class HearingControlPlane(MemoryControlPlane):
    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.progress: Progress | None = None

    def log(self, hold: Hold, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        for chunk in chunks:
            self.said[chunk.stream] += chunk.data
        self.progress = progress or self.progress


@pytest.fixture
def plane() -> HearingControlPlane:
    return HearingControlPlane()


@pytest.fixture
def equipment(plane: HearingControlPlane, host: Host, tmp_path: Path) -> Iterator[Equipment]:
    sandbox, guardian, flusher = Sandbox(host), Guardian(60.0), LogFlusher()
    held = HeldRuns(Registration(plane.worker_id, 1))
    guardian.trust(now())
    flusher.start()
    yield Equipment(plane, sandbox, guardian, find_runtimes(sandbox), ArtifactCache(tmp_path, 100_000), flusher, held)
    flusher.stop()
    guardian.close()
    sandbox.close()


def public_places(run: Run) -> Iterator[tuple[str, bytes]]:
    """What every process of the host was called with, and, of those outside the run, its environment."""
    inside = os.stat(f"/proc/{run.pid}/ns/pid").st_ino
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield f"{entry}/cmdline", (entry / "cmdline").read_bytes()
                if (entry / "ns" / "pid").stat().st_ino != inside:
                    yield f"{entry}/environ", (entry / "environ").read_bytes()
            except OSError:
                continue


def test_a_secret_is_in_no_command_line_and_no_environment_but_the_run_s(sandbox: Sandbox) -> None:
    key = memory_file(ENV.encode())
    program = Program(("/bin/sh", "-c", SLEEPS), {**PATH, "KEY": ENV}, (InputFile("keys/key", key, private=True),))
    seen: dict[str, bytes] = {}

    def look_and_end(run: Run, stdout: bytes) -> None:
        seen.update(public_places(run))
        run.kill()

    try:
        result = execute(sandbox, program, react=look_and_end)
    finally:
        os.close(key)
    assert (result.outcome.reason, result.stdout) == (EndReason.KILLED, b"asleep\n")
    assert f"/proc/{os.getpid()}/environ" in seen
    assert [place for place, content in seen.items() if ENV.encode() in content] == []


def run(equipment: Equipment, plane: HearingControlPlane, script: str, *, timeout: float = 20.0) -> None:
    data, moment = script.encode(), datetime.now(UTC)
    digest = hashlib.sha256(data).hexdigest()
    hold = Hold(uuid4(), 1, plane.worker_id, 1)
    secrets = [{"name": "a", "value": ENV, "env": "KEY"}, {"name": "b", "value": FILE, "path": "keys/key"}]
    args = json.dumps([hashlib.sha256(value.encode()).hexdigest() for value in (ENV, FILE)])
    plane.claimed = Claimed(
        *(hold.execution_id, 1, uuid4(), "job", uuid4(), moment, moment, "bash", args, "{}"),
        *(1.0, 64, 4, timeout, digest, len(data)),
        secrets=json.dumps(secrets),
    )
    plane.on_read = lambda _sha256: iter([data])
    run_attempt(equipment, hold)


def test_a_run_gets_its_secrets_and_what_it_says_of_them_is_masked(
    equipment: Equipment, plane: HearingControlPlane
) -> None:
    run(equipment, plane, LEAKS)
    (report,) = plane.reports
    assert (report.reason, report.exit_code) == (Reason.EXIT, 0), plane.said
    assert plane.said == {"stdout": b"env ***.\nhalf *** whole\n***\n", "stderr": b"***"}
    assert plane.progress == Progress(50, "at ***")
    assert (report.result, report.error) == ({"***": "***"}, "***: a secret in the name; left out")
    assert [output.name for output in report.outputs] == ["kept", "result.json"]
    everything = f"{plane.said} {plane.progress} {report} {plane.claimed}"
    assert ENV not in everything
    assert base64.b64encode(ENV.encode()).decode() not in everything


def test_the_beginning_of_a_secret_does_not_come_through_when_a_run_is_stopped(
    equipment: Equipment, plane: HearingControlPlane
) -> None:
    run(equipment, plane, 'echo -n "so far ${KEY:0:10}"; echo -n "10 at ${KEY:0:10}" >&3; sleep 60', timeout=1.0)
    (report,) = plane.reports
    assert (report.reason, plane.said["stdout"]) == (Reason.TIMEOUT, b"so far ***")
    assert plane.progress == Progress(10, "at ***")
