"""Builds the command, files and environment of a run; values in, values out.

Punctual's variables override a job's own, so a job cannot fake the identity of its runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from jobs.domain.worker_protocol import ClaimedRun
from workers.sandbox.runtimes import Interpreter, build_command
from workers.sandbox.values import InputFile, Limits, Program

MAGIC_BYTES = 16


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Open descriptors of a run's verified files."""

    program: int
    inputs: dict[str | None, int] = field(default_factory=dict)  # by path; None: standard input
    secrets: dict[str, int] = field(default_factory=dict)  # by path


def build_program(
    claimed: ClaimedRun, run_files: RunFiles, interpreters: Mapping[str, Interpreter], limits: Limits
) -> Program:
    args: list[str] = json.loads(claimed.args)
    head = os.pread(run_files.program, MAGIC_BYTES, 0)
    command = build_command(claimed.runtime, interpreters, args, head=head, limits=limits)
    files = [InputFile(path, descriptor) for path, descriptor in run_files.inputs.items() if path is not None]
    secrets = [InputFile(path, descriptor, private=True) for path, descriptor in run_files.secrets.items()]
    return Program(
        argv=command.argv,
        environment=build_environment(claimed, datetime.now(UTC) + timedelta(seconds=limits.wall_seconds)),
        files=(InputFile(command.file, run_files.program, executable=True), *files, *secrets),
        stdin=run_files.inputs.get(None),
        network=claimed.network,
    )


def build_environment(claimed: ClaimedRun, ends_at: datetime) -> dict[str, str]:
    """Build the environment; `ends_at` is the time limit by this machine's clock, which the program sees."""
    env: dict[str, str] = json.loads(claimed.env)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/work",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "LANG": "C.UTF-8",
        **env,
        **{secret.env: secret.value for secret in claimed.opened_secrets() if secret.env is not None},
        "PUNCTUAL_EXECUTION_ID": str(claimed.execution_id),
        "PUNCTUAL_ATTEMPT": str(claimed.attempt),
        "PUNCTUAL_JOB_ID": str(claimed.job_id),
        "PUNCTUAL_JOB_NAME": claimed.job_name,
        "PUNCTUAL_RUN_ID": str(claimed.run_id),
        "PUNCTUAL_SCHEDULED_FOR": claimed.scheduled_for.isoformat(),
        "PUNCTUAL_DEADLINE": ends_at.isoformat(timespec="milliseconds"),
        "PUNCTUAL_PROGRESS": "/dev/fd/3",
    }
