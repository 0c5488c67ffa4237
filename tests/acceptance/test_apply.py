"""A file of jobs is applied to a running stack, and applied again changes nothing."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.acceptance.test_cli import punctual
from tests.support.stack import Stack

FILE = """
calendars:
- {name: apply-off, dates: [2090-01-01]}
jobs:
- name: apply-after
  runtime: sh
  script: echo after
  dependencies: [{job: apply-first, condition: completion}]
- name: apply-first
  script_file: first.sh
  stdin: words
  inputs: [{path: data/a, file: data}]
  args: [one, "2"]
  env: {A: "on"}
  timeout: 5m
  retry: {max_attempts: 3, backoff: 2h, on_exit_codes: [75, 9]}
  requirements: {cpu: 0.5, capabilities: [sh, bash]}
  schedules:
  - {cron: "0  3 * * *", timezone: Europe/Paris, calendar: apply-off, catch_up: none}
  - {every: 6h, jitter: 30s}
  - {at: "2090-01-31T09:00", timezone: Europe/Paris}
  - {solar: "sunset 48.85,2.35", max_count: 9, ends_at: 2090-01-01T00:00:00Z}
"""


def shown(stack: Stack, name: str) -> dict[str, Any]:
    (job,) = stack.api.get("jobs", params={"search": name}).json()["results"]
    assert isinstance(job, dict)
    return {**job, "schedules": sorted(job["schedules"], key=itemgetter("id"))}


def test_a_file_is_applied_once_and_then_again_to_no_effect(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "first.sh").write_text("#!/bin/bash\ncat data/a -\n")
    (tmp_path / "data").write_bytes(b"\xff\x00data")
    file = tmp_path / "jobs.yaml"
    file.write_text(FILE)
    assert punctual(stack, "apply", file).stderr.splitlines()[-1] == "Applied 3: apply-off, apply-first, apply-after."
    before = [shown(stack, name) for name in ("apply-first", "apply-after")]
    assert (before[0]["version"], before[0]["runtime"]) == (1, "bash")
    again = punctual(stack, "apply", file)
    assert (again.stdout.splitlines()[-1], again.stderr) == (
        "0 to create, 0 to change, 3 unchanged.",
        "Nothing to change.\n",
    )
    assert [shown(stack, name) for name in ("apply-first", "apply-after")] == before
    file.write_text(FILE.replace("6h", "8h").replace("  timeout: 5m\n", ""))
    changed = punctual(stack, "apply", file, "--plan", "-o", "json")
    steps = {step["name"]: [each["field"] for each in step["changes"]] for step in json.loads(changed.stdout)["jobs"]}
    assert steps == {"apply-first": ["timeout_seconds", "schedules"], "apply-after": []}
    punctual(stack, "apply", file)
    after = shown(stack, "apply-first")
    assert (after["version"], after["timeout_seconds"]) == (2, 3600.0)
    assert [each["id"] for each in after["schedules"]] == [each["id"] for each in before[0]["schedules"]]
    for name in ("apply-after", "apply-first"):
        assert stack.api.delete(f"jobs/{shown(stack, name)['id']}").status_code == 204


def test_plan_refuses_what_apply_would_refuse_halfway(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    good = "jobs:\n- {name: apply-good, runtime: sh, script: 'true', schedules: [{cron: '0 0 1 1 *'}]}\n"
    gone = "0198c0de-0000-7000-8000-000000000001"
    for line in ("queue: nope", "team: nope", "secrets: [{name: nope, env: A}]", f"dependencies: [{gone}]"):
        file.write_text(f"{good}- {{name: apply-bad, runtime: sh, script: 'true', {line}}}\n")
        for words in (["--plan"], []):
            refused = punctual(stack, "apply", file, *words, check=False)
            assert (line, refused.returncode, refused.stdout, refused.stderr.count("\n")) == (line, 2, "", 1)
            assert refused.stderr.startswith(f"punctual: {file}:3: jobs.1.")
    assert stack.api.get("jobs", params={"search": "apply-good"}).json()["results"] == []
