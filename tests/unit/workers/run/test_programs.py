"""Environment of a run: its identity, which a job cannot override, as documented."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from jobs.domain.worker_protocol import ClaimedRun
from workers.run.programs import build_environment
from workers.sandbox.values import Program

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def claimed(**env: str) -> ClaimedRun:
    return ClaimedRun(
        uuid4(), 7, uuid4(), "nightly", uuid4(), NOW, NOW, "bash", "[]", json.dumps(env), 1.0, 1, 1, 1.0, "0" * 64, 1
    )


def test_environment_identifies_the_run() -> None:
    run = claimed(REGION="eu", PATH="/work")
    environment = build_environment(run, NOW)
    assert (environment["REGION"], environment["PATH"], environment["HOME"]) == ("eu", "/work", "/work")
    assert {name: value for name, value in environment.items() if name.startswith("PUNCTUAL_")} == {
        "PUNCTUAL_EXECUTION_ID": str(run.execution_id),
        "PUNCTUAL_ATTEMPT": "7",
        "PUNCTUAL_JOB_ID": str(run.job_id),
        "PUNCTUAL_JOB_NAME": "nightly",
        "PUNCTUAL_RUN_ID": str(run.run_id),
        "PUNCTUAL_SCHEDULED_FOR": "2030-01-02T03:04:05.678901+00:00",
        "PUNCTUAL_DEADLINE": "2030-01-02T03:04:05.678+00:00",
        "PUNCTUAL_PROGRESS": "/dev/fd/3",
    }


def test_secrets_override_job_variables_but_not_punctuals() -> None:
    given = [
        {"name": "a", "value": "one two", "env": "REGION"},
        {"name": "b", "value": "three", "env": "PUNCTUAL_ATTEMPT"},
        {"name": "c", "value": "four", "path": "key"},
    ]
    environment = build_environment(replace(claimed(REGION="eu"), secrets=json.dumps(given)), NOW)
    assert (environment["REGION"], environment["PUNCTUAL_ATTEMPT"]) == ("one two", "7")
    assert "four" not in environment.values()


def test_program_repr_hides_environment() -> None:
    assert "one two" not in repr(Program(("true",), {"A": "one two"}))


def test_job_cannot_fake_run_identity() -> None:
    assert build_environment(claimed(PUNCTUAL_ATTEMPT="1"), NOW)["PUNCTUAL_ATTEMPT"] == "7"


def test_every_variable_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs/programs.md").read_text()
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))
    assert documented == set(build_environment(claimed(), NOW))
