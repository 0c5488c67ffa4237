"""What a run's environment tells it: who it is, whatever its job says, as the documentation has it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from jobs.protocol import Claimed
from workers.programs import environment_of
from workers.sandbox import Program

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def claimed(**env: str) -> Claimed:
    return Claimed(
        uuid4(), 7, uuid4(), "nightly", uuid4(), NOW, NOW, "bash", "[]", json.dumps(env), 1.0, 1, 1, 1.0, "0" * 64, 1
    )


def test_a_run_knows_who_it_is() -> None:
    run = claimed(REGION="eu", PATH="/work")
    environment = environment_of(run, NOW)
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


def test_secrets_come_after_the_job_s_own_variables_and_before_those_that_say_who_it_is() -> None:
    given = [
        {"name": "a", "value": "one two", "env": "REGION"},
        {"name": "b", "value": "three", "env": "PUNCTUAL_ATTEMPT"},
        {"name": "c", "value": "four", "path": "key"},
    ]
    environment = environment_of(replace(claimed(REGION="eu"), secrets=json.dumps(given)), NOW)
    assert (environment["REGION"], environment["PUNCTUAL_ATTEMPT"]) == ("one two", "7")
    assert "four" not in environment.values()


def test_nothing_that_is_shown_of_a_program_tells_its_environment() -> None:
    assert "one two" not in repr(Program(("true",), {"A": "one two"}))


def test_a_job_cannot_say_that_its_run_is_another() -> None:
    assert environment_of(claimed(PUNCTUAL_ATTEMPT="1"), NOW)["PUNCTUAL_ATTEMPT"] == "7"


def test_the_documentation_names_every_variable() -> None:
    text = (Path(__file__).parents[3] / "docs/programs.md").read_text()
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))
    assert documented == set(environment_of(claimed(), NOW))
