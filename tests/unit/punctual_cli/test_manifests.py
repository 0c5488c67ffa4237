"""Manifests become jobs in the shape of the API; mistakes are refused with their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rest_framework.fields import empty

from punctual_cli.apply.manifests import (
    JOB_DEFAULTS,
    REQUIREMENTS_DEFAULTS,
    RETRY_DEFAULTS,
    SCHEDULE_DEFAULTS,
    JobManifest,
    Source,
    read_manifest,
)
from punctual_cli.argument_parsing import Dependency
from punctual_client.errors import UsageError
from punctual_client.programs import Runtime

JOB = "jobs:\n- name: a\n  runtime: sh\n  script: echo\n"


def the_job(text: str, folder: Path = Path()) -> JobManifest:
    (job,) = read_manifest(text.encode(), "f.yaml", folder).jobs
    return job


def test_defaults_are_those_of_the_server() -> None:
    from jobs.api.resources.definitions.job_input import JobInput, RequirementsInput, ScheduleInput
    from jobs.domain.retry_policy import DEFAULT_RETRY_POLICY

    def defaults(serializer: Any) -> dict[str, object]:
        found = {name: field.default for name, field in serializer().fields.items() if field.default is not empty}
        return {name: value() if callable(value) else value for name, value in found.items()}

    elsewhere = {"inputs", "schedules", "dependencies"}
    assert {name: value for name, value in defaults(JobInput).items() if name not in elsewhere} == JOB_DEFAULTS
    assert defaults(RequirementsInput) == REQUIREMENTS_DEFAULTS
    assert {name: getattr(DEFAULT_RETRY_POLICY, name) for name in DEFAULT_RETRY_POLICY.__slots__} == RETRY_DEFAULTS
    assert defaults(ScheduleInput) == {**SCHEDULE_DEFAULTS, "starts_at": None}


def test_missing_fields_have_defaults() -> None:
    job = the_job(JOB)
    assert (job.name, job.runtime, job.program) == ("a", Runtime.SH, Source(text="echo"))
    assert job.fields == {**JOB_DEFAULTS, "requirements": REQUIREMENTS_DEFAULTS, "retry": RETRY_DEFAULTS}


def test_everything_is_read_in_the_shape_of_the_api(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print()")
    (tmp_path / "in.csv").write_text("1")
    job = the_job(
        """
jobs:
- name: a
  script_file: a.py
  stdin_file: in.csv
  inputs: [{path: d/x, file: in.csv}]
  args: [--day, "1"]
  env: {A: "1"}
  secrets: [{name: s, env: S}, {name: k, file: k.pem}]
  priority: 9
  queue: q
  timeout: 1h30m
  deadline: 90
  requirements: {cpu: 2, capabilities: [b, a, b], resources: {gpu: 1}}
  retry: {max_attempts: 3, backoff: 2h, on_exit_codes: [9, 1]}
  max_concurrency: null
  network: true
  dependencies: [x, {job: y, condition: failure}]
  schedules:
  - {cron: "0  3 * * *", timezone: Europe/Paris, jitter: 5m, excluded_dates: [2030-02-01, 2030-01-01]}
  - {every: 5m, starts_at: "2030-01-01T00:00:00+01:00", max_count: 3}
  - {at: "2030-01-31T09:00", timezone: Europe/Paris}
  - {cron: "@Daily", calendar: off}
""",
        tmp_path,
    )
    assert (job.runtime, job.program, job.stdin) == (
        Runtime.PYTHON, Source(file=tmp_path / "a.py"), Source(file=tmp_path / "in.csv"),
    )  # fmt: skip
    assert job.inputs == (("d/x", tmp_path / "in.csv"),)
    assert job.dependencies == (Dependency("x", "success"), Dependency("y", "failure"))
    expected = {
        "args": ["--day", "1"],
        "env": {"A": "1"},
        "secrets": [{"name": "k", "env": None, "file": "k.pem"}, {"name": "s", "env": "S", "file": None}],
        "priority": 9,
        "queue": "q",
        "timeout_seconds": 5400,
        "deadline_seconds": 90,
        "requirements": {**REQUIREMENTS_DEFAULTS, "cpu": 2, "capabilities": ["a", "b"], "resources": {"gpu": 1}},
        "retry": {
            **RETRY_DEFAULTS, "max_attempts": 3, "backoff_seconds": 7200, "max_backoff_seconds": 7200,
            "on_exit_codes": [1, 9],
        },
        "max_concurrency": None,
        "network": True,
    }  # fmt: skip
    assert job.fields == {**JOB_DEFAULTS, **expected}
    assert [{k: v for k, v in each.items() if v != SCHEDULE_DEFAULTS.get(k)} for each in job.schedules] == [
        {"cron": "0 3 * * *", "timezone": "Europe/Paris", "jitter_seconds": 300,
         "excluded_dates": ["2030-01-01", "2030-02-01"]},
        {"every_seconds": 300, "starts_at": "2029-12-31T23:00:00Z", "max_count": 3},
        {"at": "2030-01-31T08:00:00Z", "timezone": "Europe/Paris"},
        {"cron": "@daily", "calendar": "off"},
    ]  # fmt: skip


def test_documents_add_up_and_calendars_are_read() -> None:
    other = JOB.replace("name: a", "name: b")
    text = f"calendars: [{{name: off, dates: [2030-12-25, 2030-01-01]}}]\n---\n{JOB}---\n{other}"
    manifest = read_manifest(text.encode(), "f.yaml", Path())
    assert [job.name for job in manifest.jobs] == ["a", "b"]
    assert [(each.name, each.dates) for each in manifest.calendars] == [("off", ("2030-01-01", "2030-12-25"))]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "f.yaml contains neither jobs: nor calendars:"),
        ("job: []", "f.yaml:1: job: There is no such field; use one of: calendars, jobs"),
        ("jobs: {}", "f.yaml:1: jobs: This must be a list"),
        ("jobs:\n- a", "f.yaml:2: jobs.0: This must have keys"),
        ("jobs:\n- {runtime: sh, script: x}", "f.yaml:2: jobs.0: A name is missing"),
        ("jobs:\n- {name: 1, script: x}", "jobs.0.name: This must be text"),
        ("jobs:\n- {name: ' a', script: x}", "without blanks at its ends"),
        ('jobs:\n- {name: "a\\e[2J", script: x}', "A name is a line of"),
        (f"jobs:\n- {{name: {'a' * 201}, script: x}}", "at most 200 characters"),
        ("jobs:\n- {name: a}", "The job has no program"),
        ("jobs:\n- {name: a, script: ''}", "This is empty"),
        ("jobs:\n- {name: a, script: x}", "cannot be guessed: set runtime"),
        ("jobs:\n- {name: a, runtime: cobol, script: x}", "must be one of bash"),
        ("jobs:\n- {name: a, script: x, script_file: y}", "either script or script_file"),
        ("jobs:\n- {name: a, script_file: nowhere.sh}", "There is no file nowhere.sh"),
        (f"jobs:\n- {{name: a, script_file: {'x' * 5000}}}", "script_file: This cannot name a file"),
        (f"{JOB}- name: a\n  script: x\n  runtime: sh\n", "f.yaml:5: jobs.1: A second job is called 'a'"),
        (f"{JOB}  priorty: 3\n", "f.yaml:5: jobs.0.priorty: There is no such field"),
        (f"{JOB}  priority: high\n", "f.yaml:5: jobs.0.priority: This must be a whole number"),
        (f"{JOB}  priority: true\n", "whole number"),
        (f"{JOB}  network: on\n", "true or false"),
        (f"{JOB}  env: {{PORT: 80}}\n", "jobs.0.env.PORT: This must be text: put it in quotes"),
        (f"{JOB}  timeout: soon\n", "jobs.0.timeout: 'soon' is not a duration"),
        (f"{JOB}  timeout: 5m\n  timeout_seconds: 3\n", "timeout_seconds a second time"),
        (f"{JOB}  timeout_seconds: 5m\n", "jobs.0.timeout_seconds: This must be a number"),
        (f"{JOB}  retry: {{tries: 3}}\n", "jobs.0.retry.tries: There is no such field"),
        (f"{JOB}  inputs: [{{path: a}}]\n", "file is missing"),
        (f"{JOB}  secrets: [{{name: a}}]\n", "either the env or the file"),
        (f"{JOB}  dependencies: [{{job: a, condition: never}}]\n", "condition must be one of"),
        (f"{JOB}  schedules: [{{cron: '@daily', every: 5m}}]\n", "exactly one of"),
        (f"{JOB}  schedules: [{{timezone: UTC}}]\n", "exactly one of"),
        (f"{JOB}  schedules: [{{at: 2030-01-31T09:00}}]\n", "has no offset"),
        (f"{JOB}  schedules: [{{at: tomorrow}}]\n", "not a time"),
        (
            f"{JOB}  schedules: [{{cron: '@daily', excluded_dates: [2030-02-30]}}]\n",
            "excluded_dates.0: This is not a date",
        ),
    ],
)
def test_an_invalid_manifest_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_manifest(text.encode(), "f.yaml", Path())
    assert sentence in str(refused.value)
