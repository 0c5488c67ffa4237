"""`retry` and `dlq` as processes: their requests and output."""

from __future__ import annotations

import json

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

DEAD = "0198c0de-0000-7000-8000-000000000001"
NEW = "0198c0de-0000-7000-8000-000000000002"
LETTER: dict[str, object] = {
    "id": DEAD, "job_id": "J", "job_name": "nightly", "status": "failed", "attempt": 3, "exit_code": 7,
    "reason": "exit", "scheduled_for": "2030-01-01T00:00:00Z", "ended_at": "2030-01-01T00:05:00Z",
}  # fmt: skip
AGAIN: dict[str, object] = LETTER | {"id": NEW, "status": "ready", "attempt": 0, "retry_of": DEAD}


def asked(server: RecordingServer) -> list[tuple[str, str]]:
    return [(each.method, each.path) for each in server.requests]


def test_a_retry_prints_the_new_execution(server: RecordingServer) -> None:
    server.answer("POST", f"/api/v1/executions/{DEAD}/retry", AGAIN, status=201)
    ended = punctual("retry", DEAD, url=server.url)
    assert (ended.returncode, ended.stdout) == (0, f"{NEW}\n")


def test_a_retry_that_is_waited_for_gives_the_code_of_the_new_one(server: RecordingServer) -> None:
    server.answer("POST", f"/api/v1/executions/{DEAD}/retry", AGAIN, status=201)
    server.answer("GET", f"/api/v1/executions/{NEW}", AGAIN | {"status": "failed", "exit_code": 9, "attempt": 1})
    server.answer("GET", f"/api/v1/executions/{NEW}/logs?format=json&attempt=1", {"results": [], "next": None})
    assert punctual("retry", DEAD, "--wait", url=server.url).returncode == 9


@pytest.mark.parametrize(("words", "status"), [([], "open"), (["--status", "dismissed"], "dismissed")])
def test_dead_letters_are_listed(server: RecordingServer, words: list[str], status: str) -> None:
    server.answer("GET", f"/api/v1/dead-letters?status={status}&limit=50", {"results": [LETTER], "next": None})
    ended = punctual("dlq", *words, url=server.url)
    assert (
        ended.stdout.splitlines()[1] == f"{DEAD}\tnightly\tfailed\texit\t7\t2030-01-01 00:00:00Z\t2030-01-01 00:05:00Z"
    )
    assert json.loads(punctual("dlq", *words, "-o", "json", url=server.url).stdout) == [LETTER]


def test_several_are_redriven_or_dismissed_by_one_command(server: RecordingServer) -> None:
    for letter in (DEAD, NEW):
        server.answer("POST", f"/api/v1/dead-letters/{letter}/redrive", AGAIN, status=201)
        server.answer("POST", f"/api/v1/dead-letters/{letter}/dismiss", LETTER)
    redriven = punctual("dlq", "redrive", DEAD, NEW, url=server.url)
    assert (redriven.returncode, redriven.stdout) == (0, f"{NEW}\n{NEW}\n")
    dismissed = punctual("dlq", "dismiss", DEAD, url=server.url)
    assert (dismissed.returncode, dismissed.stdout) == (0, "")
    assert dismissed.stderr == f"Dismissed {DEAD} of nightly.\n"
    assert asked(server) == [
        ("POST", f"/api/v1/dead-letters/{DEAD}/redrive"),
        ("POST", f"/api/v1/dead-letters/{NEW}/redrive"),
        ("POST", f"/api/v1/dead-letters/{DEAD}/dismiss"),
    ]


def test_one_wrong_id_among_several_sends_nothing(server: RecordingServer) -> None:
    assert punctual("dlq", "dismiss", DEAD, "x", url=server.url).returncode == 2
    assert server.requests == []
