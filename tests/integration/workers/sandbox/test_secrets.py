"""Secrets: available to the run, invisible in the host's processes, masked in the output."""

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

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, ClaimedRun, Progress, Registration
from tests.support.control_plane import MemoryControlPlane
from tests.support.driving import PATH, execute
from workers.lease.guardian import Guardian
from workers.lease.guardian_process import boottime
from workers.lease.held_runs import HeldRuns
from workers.run.artifact_cache import ArtifactCache
from workers.run.log_stream import LogFlusher
from workers.run.run import RunContext, run_attempt
from workers.sandbox.host import Host
from workers.sandbox.memory_files import memory_file
from workers.sandbox.run import Run
from workers.sandbox.runtimes import find_runtimes
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import ExitReason, InputFile, Program

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


class RecordingControlPlane(MemoryControlPlane):
    def __init__(self) -> None:
        super().__init__()
        self.output: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.progress: Progress | None = None

    def log(self, hold: AttemptFence, chunks: Sequence[Chunk], progress: Progress | None = None) -> None:
        for chunk in chunks:
            self.output[chunk.stream] += chunk.data
        self.progress = progress or self.progress


@pytest.fixture
def plane() -> RecordingControlPlane:
    return RecordingControlPlane()


@pytest.fixture
def context(plane: RecordingControlPlane, host: Host, tmp_path: Path) -> Iterator[RunContext]:
    sandbox, guardian, flusher = Sandbox(host), Guardian(60.0), LogFlusher()
    held = HeldRuns(Registration(plane.worker_id, 1))
    guardian.lease_renewed(boottime())
    flusher.start()
    yield RunContext(plane, sandbox, guardian, find_runtimes(sandbox), ArtifactCache(tmp_path, 100_000), flusher, held)
    flusher.stop()
    guardian.close()
    sandbox.close()


def public_places(run: Run) -> Iterator[tuple[str, bytes]]:
    """Return the command lines of all processes, and the environments of those outside the run."""
    inside = os.stat(f"/proc/{run.pid}/ns/pid").st_ino
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield f"{entry}/cmdline", (entry / "cmdline").read_bytes()
                if (entry / "ns" / "pid").stat().st_ino != inside:
                    yield f"{entry}/environ", (entry / "environ").read_bytes()
            except OSError:
                continue


def test_secrets_are_only_in_the_runs_own_environment(sandbox: Sandbox) -> None:
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
    assert (result.outcome.reason, result.stdout) == (ExitReason.KILLED, b"asleep\n")
    assert f"/proc/{os.getpid()}/environ" in seen
    assert [source for source, content in seen.items() if ENV.encode() in content] == []


def run(context: RunContext, plane: RecordingControlPlane, script: str, *, timeout: float = 20.0) -> None:
    data, moment = script.encode(), datetime.now(UTC)
    digest = hashlib.sha256(data).hexdigest()
    hold = AttemptFence(uuid4(), 1, plane.worker_id, 1)
    secrets = [{"name": "a", "value": ENV, "env": "KEY"}, {"name": "b", "value": FILE, "path": "keys/key"}]
    args = json.dumps([hashlib.sha256(value.encode()).hexdigest() for value in (ENV, FILE)])
    plane.claimed = ClaimedRun(
        *(hold.execution_id, 1, uuid4(), "job", uuid4(), moment, moment, "bash", args, "{}"),
        *(1.0, 64, 4, timeout, digest, len(data)),
        secrets=json.dumps(secrets),
    )
    plane.on_read = lambda _sha256: iter([data])
    run_attempt(context, hold)


def test_run_gets_its_secrets_and_output_is_masked(context: RunContext, plane: RecordingControlPlane) -> None:
    run(context, plane, LEAKS)
    (report,) = plane.reports
    assert (report.reason, report.exit_code) == (Reason.EXIT, 0), plane.output
    assert plane.output == {"stdout": b"env ***.\nhalf *** whole\n***\n", "stderr": b"***"}
    assert plane.progress == Progress(50, "at ***")
    assert (report.result, report.error) == ({"***": "***"}, "***: a secret in the name; left out")
    assert [output.name for output in report.outputs] == ["kept", "result.json"]
    everything = f"{plane.output} {plane.progress} {report} {plane.claimed}"
    assert ENV not in everything
    assert base64.b64encode(ENV.encode()).decode() not in everything


def test_secret_prefix_is_masked_when_a_run_is_stopped(context: RunContext, plane: RecordingControlPlane) -> None:
    run(context, plane, 'echo -n "so far ${KEY:0:10}"; echo -n "10 at ${KEY:0:10}" >&3; sleep 60', timeout=1.0)
    (report,) = plane.reports
    assert (report.reason, plane.output["stdout"]) == (Reason.TIMEOUT, b"so far ***")
    assert plane.progress == Progress(10, "at ***")
