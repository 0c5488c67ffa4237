"""`teams`, `team` and `queue` as processes: requests and output."""

from __future__ import annotations

import json

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

TEAM: dict[str, object] = {"id": "T", "name": "payments", "members": ["ann", "bob"]}
QUEUE: dict[str, object] = {
    "id": "Q", "name": "batch", "pool": "default", "priority": 0, "max_concurrency": None, "paused": False,
}  # fmt: skip
TEAMS, QUEUES = "/api/v1/teams?limit=100", "/api/v1/queues?limit=100"


def sent(server: RecordingServer) -> tuple[str, str, object]:
    last = server.requests[-1]
    return last.method, last.path, json.loads(last.body)


def test_teams_are_listed_with_their_members(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/teams?limit=50", {"results": [TEAM], "next": None})
    assert punctual("teams", url=server.url).stdout.splitlines()[1] == "payments\tann, bob"


def test_the_members_of_a_team_are_printed(server: RecordingServer) -> None:
    server.answer("GET", TEAMS, {"results": [TEAM], "next": None})
    assert punctual("team", "payments", url=server.url).stdout == "ann\nbob\n"
    unknown = punctual("team", "nowhere", url=server.url)
    assert (unknown.returncode, unknown.stdout) == (4, "")
    assert "You are in no team called 'nowhere'" in unknown.stderr


@pytest.mark.parametrize(
    ("words", "request_sent", "said"),
    [
        (["--create", "--add", "cid"], ("POST", "/api/v1/teams", {"name": "payments", "members": ["cid"]}), "Created"),
        (["--add", "cid"], ("PATCH", "/api/v1/teams/T", {"members": ["ann", "bob", "cid"]}), "has 2 members"),
        (["--remove", "bob"], ("PATCH", "/api/v1/teams/T", {"members": ["ann"]}), "has 2 members"),
        (["--rename", "money"], ("PATCH", "/api/v1/teams/T", {"name": "money"}), "has 2 members"),
        (["--delete", "--yes"], ("DELETE", "/api/v1/teams/T", {}), "Deleted payments."),
    ],
)
def test_a_team_is_created_edited_and_deleted(
    server: RecordingServer, words: list[str], request_sent: tuple[str, str, object], said: str
) -> None:
    # Whom others have added or removed since it was listed stays so.
    server.answer("GET", TEAMS, {"results": [TEAM | {"members": ["old"]}], "next": None})
    server.answer("GET", "/api/v1/teams/T", TEAM, headers={"ETag": '"as-read"'})
    server.answer("POST", "/api/v1/teams", TEAM, status=201)
    server.answer("PATCH", "/api/v1/teams/T", TEAM)
    server.answer("DELETE", "/api/v1/teams/T", b"", status=204)
    ended = punctual("team", "payments", *words, url=server.url)
    assert (ended.returncode, sent(server)) == (0, request_sent), ended.stderr
    assert said in ended.stderr
    assert server.requests[-1].headers.get("if-match") == ('"as-read"' if request_sent[0] == "PATCH" else None)


@pytest.mark.parametrize(
    "words", [["--delete", "--add", "x"], ["--create", "--remove", "x"], ["--remove", "nobody-there"]]
)
def test_contradicting_team_options_are_refused(server: RecordingServer, words: list[str]) -> None:
    server.answer("GET", TEAMS, {"results": [TEAM], "next": None})
    server.answer("GET", "/api/v1/teams/T", TEAM)
    assert punctual("team", "payments", *words, url=server.url).returncode == 2
    assert all(each.method == "GET" for each in server.requests)


@pytest.mark.parametrize(
    ("words", "request_sent"),
    [
        (["--create", "--priority=-5"], ("POST", "/api/v1/queues", {"name": "batch", "priority": -5})),
        (["--pause"], ("PATCH", "/api/v1/queues/Q", {"paused": True})),
        (["--resume", "--no-limit"], ("PATCH", "/api/v1/queues/Q", {"paused": False, "max_concurrency": None})),
        (
            ["--max-concurrency", "3", "--aging", "2m", "--pool", "gpu"],
            ("PATCH", "/api/v1/queues/Q", {"max_concurrency": 3, "aging_seconds": 120, "pool": "gpu"}),
        ),
        (["--team", "vision"], ("PATCH", "/api/v1/queues/Q", {"team": "vision"})),
        (["--team", ""], ("PATCH", "/api/v1/queues/Q", {"team": None})),
        (["--delete", "-y"], ("DELETE", "/api/v1/queues/Q", {})),
    ],
)
def test_a_queue_is_created_tuned_and_deleted(
    server: RecordingServer, words: list[str], request_sent: tuple[str, str, object]
) -> None:
    server.answer("GET", QUEUES, {"results": [QUEUE], "next": None})
    server.answer("POST", "/api/v1/queues", QUEUE, status=201)
    server.answer("PATCH", "/api/v1/queues/Q", QUEUE)
    server.answer("DELETE", "/api/v1/queues/Q", b"", status=204)
    ended = punctual("queue", "batch", *words, url=server.url)
    assert (ended.returncode, sent(server)) == (0, request_sent), ended.stderr


def test_a_queue_is_shown(server: RecordingServer) -> None:
    server.answer("GET", QUEUES, {"results": [QUEUE], "next": None})
    assert json.loads(punctual("queue", "batch", "-o", "json", url=server.url).stdout) == QUEUE
    assert punctual("queue", "nowhere", url=server.url).returncode == 4


def test_a_job_is_shared_with_a_team_or_with_none(server: RecordingServer) -> None:
    job = {"id": "01890000-0000-7000-8000-000000000000", "name": "report", "status": "scheduled", "schedules": []}
    server.answer("PATCH", f"/api/v1/jobs/{job['id']}", job)
    for word, team in (("payments", "payments"), ("", None)):
        assert punctual("edit", str(job["id"]), "--team", word, url=server.url).returncode == 0
        assert sent(server)[2] == {"team": team}
