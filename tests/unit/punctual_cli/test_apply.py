"""`apply`: comparison, order of requests, and refusals before anything is sent."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from punctual_cli.apply.applying import apply_plan
from punctual_cli.apply.manifests import (
    JOB_DEFAULTS,
    REQUIREMENTS_DEFAULTS,
    RETRY_DEFAULTS,
    SCHEDULE_DEFAULTS,
    read_manifest,
)
from punctual_cli.apply.planning import FieldChange, Plan, make_plan
from punctual_client.errors import ApiError, UsageError
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

ID = "0198c0de-0000-7000-8000-000000000001"
OTHER = "0198c0de-0000-7000-8000-000000000002"
CALENDAR = "0198c0de-0000-7000-8000-000000000003"
INSTANTS = {"results": [{"at": "2030-01-01T02:00:00Z", "local": "2030-01-01T03:00:00+01:00", "note": None}]}
JOB = "jobs:\n- name: a\n  runtime: sh\n  script: echo\n"
SCHEDULE: dict[str, Any] = {
    **SCHEDULE_DEFAULTS, "id": "S1", "cron": "0 3 * * *", "starts_at": "2026-01-01T00:00:00Z",
    "next_instant": "2030-01-01T00:00:00Z",
}  # fmt: skip


def stored(**changes: Any) -> dict[str, Any]:
    """As the server tells the job of JOB."""
    return {
        "id": ID, "name": "a", "status": "scheduled", "owner": "me", "runtime": "sh", "artifact": "P",
        "stdin_artifact": None, "inputs": [], "schedules": [], "dependencies": [], **JOB_DEFAULTS,
        "requirements": REQUIREMENTS_DEFAULTS, "retry": RETRY_DEFAULTS, **changes,
    }  # fmt: skip


@pytest.fixture
def world(server: RecordingServer) -> RecordingServer:
    answer_plans(server)
    return server


def answer_plans(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    calendar = {"id": CALENDAR, "name": "off", "dates": ["2030-01-01"], "used_by": 0, "owner": "me"}
    others = {**calendar, "id": OTHER, "owner": "you"}
    server.answer("GET", "/api/v1/calendars?limit=100", {"results": [others, calendar], "next": None})
    for name, content in (("P", b"echo"), ("D", b"data")):
        server.answer("GET", f"/api/v1/artifacts/{name}", {"sha256": hashlib.sha256(content).hexdigest()})
    for address in (f"/api/v1/jobs/{ID}/next?count=3", f"/api/v1/jobs/{OTHER}/next?count=3"):
        server.answer("GET", address, INSTANTS)
    server.answer("POST", "/api/v1/schedules/preview", INSTANTS)


def has(server: RecordingServer, *jobs: dict[str, Any], name: str = "a") -> None:
    server.answer("GET", f"/api/v1/jobs?owner=me&name={name}&limit=100", {"results": list(jobs), "next": None})


def plan(server: RecordingServer, text: str, folder: Path = Path()) -> Plan:
    return make_plan(server.client, read_manifest(text.encode(), "f.yaml", folder))


def sent(server: RecordingServer, *methods: str) -> list[tuple[str, str, Any]]:
    wanted = methods or ("POST", "PATCH", "PUT", "DELETE")
    found = [(asked.method, asked.path, json.loads(asked.body)) for asked in server.requests if asked.method in wanted]
    return [each for each in found if not each[1].endswith("/preview")]


def test_an_unchanged_job_sends_nothing(world: RecordingServer) -> None:
    schedules = [
        {**SCHEDULE, "id": "S2", "at": "2030-01-31T08:00:00.000000+00:00", "cron": None, "calendar": CALENDAR},
        SCHEDULE,
    ]
    retry = {**RETRY_DEFAULTS, "on_exit_codes": [9, 1], "backoff_seconds": 5.0}
    has(world, stored(name="aa"), stored(schedules=schedules, retry=retry))
    planned = plan(
        world,
        f"{JOB}  retry: {{on_exit_codes: [1, 9]}}\n  schedules:\n  - {{cron: '0 3  * * *'}}\n"
        "  - {at: '2030-01-31T09:00:00+01:00', calendar: off}\n",
    )
    assert [(step.action, step.changes) for step in planned.jobs] == [("unchanged", ())]
    apply_plan(world.client, planned)
    assert sent(world) == []


@pytest.mark.parametrize(
    ("lines", "changes", "changed"),
    [
        ("priority: 7", {}, [FieldChange("priority", 5, 7)]),
        ("", {"priority": 7}, [FieldChange("priority", 7, 5)]),
        ("timeout: 5m", {}, [FieldChange("timeout_seconds", 3600, 300)]),
        ("requirements: {cpu: 1}", {}, [FieldChange("requirements.cpu", 0.25, 1)]),
        ("", {"retry": {**RETRY_DEFAULTS, "max_attempts": 4}}, [FieldChange("retry.max_attempts", 4, 1)]),
        ("", {"env": {"A": "b"}}, [FieldChange("env", {"A": "b"}, {})]),
        ("", {"stdin_artifact": "D"}, [FieldChange("stdin", f"sha256:{hashlib.sha256(b'data').hexdigest()}", None)]),
        ("stdin: data", {"stdin_artifact": "D"}, []),
        ("inputs: [{path: x, file: data}]", {"inputs": [{"path": "x", "artifact": "D"}]}, []),
        ("", {"runtime": "bash"}, [FieldChange("runtime", "bash", "sh")]),
        ("", {"dependencies": [{"job": OTHER, "condition": "failure"}]},
         [FieldChange("dependencies", [f"{OTHER}:failure"], [])]),
    ],
)  # fmt: skip
def test_a_change_is_shown_field_by_field(
    world: RecordingServer, tmp_path: Path, lines: str, changes: dict[str, Any], changed: list[FieldChange]
) -> None:
    (tmp_path / "data").write_bytes(b"data")
    has(world, stored(**changes))
    (step,) = plan(world, f"{JOB}  {lines}\n", tmp_path).jobs
    assert list(step.changes) == changed


def test_only_changes_are_sent_and_schedules_keep_their_ids(world: RecordingServer) -> None:
    every = {**SCHEDULE, "id": "S2", "cron": None, "every_seconds": 60.0}
    has(world, stored(schedules=[SCHEDULE, {**SCHEDULE, "id": "S3", "cron": "@daily"}, every]))
    world.answer("PATCH", f"/api/v1/jobs/{ID}", stored())
    lines = "  priority: 7\n  schedules:\n  - cron: 0 4 * * *\n  - cron: '@daily'\n  - {every: 5m}\n  - {delay: 9s}\n"
    planned = plan(world, f"{JOB}{lines}")
    apply_plan(world.client, planned)
    ((_, _, body),) = sent(world)
    assert body == {
        "priority": 7,
        "schedules": [
            {"id": "S1", **SCHEDULE_DEFAULTS, "cron": "0 4 * * *"},
            {"id": "S3"},
            {"id": "S2", **SCHEDULE_DEFAULTS, "every_seconds": 300},
            {**SCHEDULE_DEFAULTS, "delay_seconds": 9},
        ],
    }


def test_new_jobs_are_created_after_their_upstream_jobs(world: RecordingServer) -> None:
    text = f"{JOB}  dependencies: [b, {{job: c, condition: failure}}]\n- {{name: b, runtime: sh, script: b}}\n"
    has(world)
    has(world, name="b")
    has(world, stored(id=OTHER, name="c"), name="c")
    world.answer("POST", "/api/v1/jobs", stored(id=CALENDAR, name="b"), status=201)
    world.answer("POST", "/api/v1/jobs", stored(), status=201)
    apply_plan(world.client, plan(world, text))
    assert [body for _, _, body in sent(world)] == [
        {"name": "b", "runtime": "sh", "script": "b", "inputs": [], "dependencies": [], "schedules": [], "stdin": None},
        {
            "name": "a", "runtime": "sh", "script": "echo", "inputs": [], "schedules": [], "stdin": None,
            "dependencies": [
                {"job": CALENDAR, "condition": "success"}, {"job": OTHER, "condition": "failure"},
            ],
        },
    ]  # fmt: skip


def test_the_preview_uses_a_calendar_that_is_not_created_yet(world: RecordingServer) -> None:
    has(world)
    text = f"calendars: [{{name: off, dates: [2030-05-01]}}]\n{JOB}  schedules: [{{cron: '@daily', calendar: off}}]\n"
    planned = plan(world, text)
    assert [step.action for step in planned.steps] == ["change", "create"]
    (asked,) = [json.loads(asked.body) for asked in world.requests if asked.path.endswith("/preview")]
    assert asked["schedules"] == [{**SCHEDULE_DEFAULTS, "cron": "@daily", "excluded_dates": ["2030-05-01"]}]
    assert asked["count"] == 3


@pytest.mark.parametrize(
    ("text", "jobs", "sentence"),
    [
        (JOB, [stored(), stored(id=OTHER)], "f.yaml:2: 2 of your jobs are called 'a'"),
        (JOB, [stored(status="cancelled")], "is cancelled, and cannot be changed"),
        (f"{JOB}  dependencies: [z]\n", [], "runs after 'z', which is neither in this file nor among your jobs"),
        (f"{JOB}  dependencies: [b]\n- {{name: b, runtime: sh, script: b, dependencies: [a]}}\n", [],
         "These jobs run after each other: "),
    ],
)  # fmt: skip
def test_an_ambiguous_file_is_refused_before_anything_is_sent(
    world: RecordingServer, text: str, jobs: list[dict[str, Any]], sentence: str
) -> None:
    has(world, *jobs)
    has(world, name="z")
    with pytest.raises(UsageError) as refused:
        plan(world, text)
    assert sentence in str(refused.value)
    assert sent(world) == []


def test_a_schedule_that_the_server_refuses_is_named_by_its_line(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    server.answer("GET", "/api/v1/calendars?limit=100", {"results": [], "next": None})
    has(server)
    problem = {"errors": [{"field": "schedules.1.cron", "message": "The cron expression is not valid."}]}
    server.answer("POST", "/api/v1/schedules/preview", problem, status=400)
    with pytest.raises(UsageError, match=r"f\.yaml:7: jobs\.0\.schedules\.1: The cron expression is not valid"):
        plan(server, f"{JOB}  schedules:\n  - {{every: 5m}}\n  - cron: nonsense\n")


def test_the_first_refusal_stops_and_lists_applied_steps(
    world: RecordingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    has(world)
    has(world, name="b")
    has(world, name="c")
    more = "".join(f"- {{name: {name}, runtime: sh, script: b}}\n" for name in "bc")
    world.answer("POST", "/api/v1/jobs", stored(), status=201)
    refusal = {"errors": [{"field": "queue", "message": "There is no such queue."}]}
    world.answer("POST", "/api/v1/jobs", refusal, status=400)
    with pytest.raises(ApiError, match="queue: There is no such queue"):
        apply_plan(world.client, plan(world, f"{JOB}{more}"))
    assert "f.yaml:5: b could not be applied. Applied before it: a." in capsys.readouterr().err
    assert len(sent(world)) == 2


def test_the_command_shows_the_plan_and_sends_nothing_that_was_only_to_be_planned(
    world: RecordingServer, tmp_path: Path
) -> None:
    has(world, stored(priority=7, schedules=[SCHEDULE]))
    (tmp_path / "f.yaml").write_text(f"{JOB}  schedules: [{{cron: 0 3 * * *}}]\n")
    ended = punctual("apply", str(tmp_path / "f.yaml"), "--plan", url=world.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "~ a: change",
        "    priority: 7 → 5",
        "    fires 2030-01-01 03:00:00+01:00",
        "0 to create, 1 to change, 0 unchanged.",
    ]
    told = json.loads(
        punctual("apply", "-", "--plan", "-o", "json", url=world.url, typed=f"{JOB}  priority: 7\n").stdout
    )
    assert [(each["name"], each["action"], each["changes"]) for each in told["jobs"]] == [
        ("a", "change", [{"field": "schedules", "old": ["cron 0 3 * * *"], "new": []}])
    ]
    assert sent(world) == []
