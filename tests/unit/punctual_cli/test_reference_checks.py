"""A plan refuses missing references before anything is sent, with few requests."""

from __future__ import annotations

from typing import Any

import pytest

from punctual_client.errors import UsageError
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_apply import ID, JOB, OTHER, SCHEDULE, answer_plans, has, plan, sent, stored

PAGES = {
    "queues": [{"id": "Q", "name": "default", "pool": "default", "priority": 0}],
    "teams": [
        {"id": "T", "name": "ours", "members": ["you", "me"]}, {"id": "U", "name": "theirs", "members": ["you"]},
    ],
    "secrets": [{"id": "S", "name": "theirs", "owner": "you", "version": 1, "updated_at": "2030-01-01T00:00:00Z"}],
}  # fmt: skip
LAST = {
    "queues": {"id": "R", "name": "slow", "pool": "default", "priority": 0},
    "teams": {"id": "V", "name": "last", "members": ["me"]},
    "secrets": {"id": "Z", "name": "mine", "owner": "me", "version": 1, "updated_at": "2030-01-01T00:00:00Z"},
}


@pytest.fixture
def fleet(server: RecordingServer) -> RecordingServer:
    """Each of its lists has a second page."""
    answer_plans(server)
    for kind, rows in PAGES.items():
        following = f"{server.url}/api/v1/{kind}?cursor=2&limit=100"
        server.answer("GET", f"/api/v1/{kind}?limit=100", {"results": rows, "next": following})
        server.answer("GET", f"/api/v1/{kind}?cursor=2&limit=100", {"results": [LAST[kind]], "next": None})
    server.answer("GET", f"/api/v1/jobs/{ID}", stored())
    return server


def asked_lists(server: RecordingServer) -> list[str]:
    kinds = [asked.path.removeprefix("/api/v1/").partition("?")[0] for asked in server.requests]
    return [kind for kind in kinds if kind in PAGES]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("queue: nope", "jobs.0.queue: There is no queue 'nope': punctual queues lists them."),
        ("team: nope", "jobs.0.team: You are not a member of a team 'nope': punctual teams lists yours."),
        ("team: theirs", "You are not a member of a team 'theirs'"),
        ("secrets: [{name: mine, env: A}, {name: nope, env: B}]",
         "jobs.0.secrets.1.name: You have no secret 'nope': punctual secrets set nope makes it."),
        ("secrets: [{name: theirs, env: A}]", "You have no secret 'theirs'"),
        (f"dependencies: [{OTHER}]", f"jobs.0.dependencies: You have no job {OTHER}."),
    ],
)  # fmt: skip
def test_a_missing_reference_is_refused_with_its_line(fleet: RecordingServer, line: str, sentence: str) -> None:
    has(fleet)
    with pytest.raises(UsageError, match=r"^f\.yaml:5: ") as refused:
        plan(fleet, f"{JOB}  {line}\n")
    assert sentence in str(refused.value)
    assert sent(fleet) == []


def test_references_on_later_pages_are_found_and_each_list_is_read_once(fleet: RecordingServer) -> None:
    named = f"queue: slow, team: last, secrets: [{{name: mine, env: A}}], dependencies: [{ID}]"
    for name in ("b", "c"):
        has(fleet, name=name)
    rows = "".join(f"- {{name: {name}, runtime: sh, script: x, {named}}}\n" for name in ("b", "c"))
    assert [step.action for step in plan(fleet, f"jobs:\n{rows}").jobs] == ["create", "create"]
    assert asked_lists(fleet) == ["queues", "queues", "teams", "teams", "secrets", "secrets"]


@pytest.mark.parametrize(
    ("line", "there"),
    [("", None), ("team: left", {"team": "left"}), ("queue: default\n  priority: 7", {}), ("team: null", {})],
)
def test_unchanged_references_are_not_checked(fleet: RecordingServer, line: str, there: dict[str, Any] | None) -> None:
    has(fleet, *([] if there is None else [stored(**there)]))
    plan(fleet, f"{JOB}  {line}\n")
    assert asked_lists(fleet) == []


def test_a_schedule_of_a_paused_job_is_checked_as_any_other(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/usage", {"owner": "me"})
    server.answer("GET", "/api/v1/calendars?limit=100", {"results": [], "next": None})
    has(server, stored(status="paused", schedules=[SCHEDULE]))
    server.answer("GET", "/api/v1/artifacts/P", {"sha256": "x"})
    problem = {"errors": [{"field": "schedules.0.cron", "message": "The cron expression is not valid."}]}
    server.answer("POST", "/api/v1/schedules/preview", problem, status=400)
    with pytest.raises(UsageError, match="The cron expression is not valid"):
        plan(server, f"{JOB}  schedules: [{{cron: nonsense}}]\n")
