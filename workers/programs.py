"""What a run is made of: its command, its files, its standard input, and what its environment tells it.

Values in, values out. A job's own variables come before Punctual's: none of them can say that a run is another one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from jobs.protocol import Claimed
from workers.sandbox import InputFile, Interpreter, Limits, Program, command_for

HEAD_BYTES = 16


@dataclass(frozen=True, slots=True)
class Given:
    """Open files, each verified."""

    program: int
    inputs: dict[str | None, int] = field(default_factory=dict)  # by path; None: standard input
    secrets: dict[str, int] = field(default_factory=dict)  # by path


def make_program(claimed: Claimed, given: Given, interpreters: Mapping[str, Interpreter], limits: Limits) -> Program:
    args: list[str] = json.loads(claimed.args)
    head = os.pread(given.program, HEAD_BYTES, 0)
    command = command_for(claimed.runtime, interpreters, args, head=head, limits=limits)
    files = [InputFile(path, descriptor) for path, descriptor in given.inputs.items() if path is not None]
    secrets = [InputFile(path, descriptor, private=True) for path, descriptor in given.secrets.items()]
    return Program(
        argv=command.argv,
        environment=environment_of(claimed, datetime.now(UTC) + timedelta(seconds=limits.wall_seconds)),
        files=(InputFile(command.file, given.program, executable=True), *files, *secrets),
        stdin=given.inputs.get(None),
        network=claimed.network,
    )


def environment_of(claimed: Claimed, ends_at: datetime) -> dict[str, str]:
    """`ends_at`: when its time is over, by this machine's clock, which is the one that the program sees."""
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
