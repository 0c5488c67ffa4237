"""`workers` and `queues` as processes: their output."""

from __future__ import annotations

import json

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

WORKER: dict[str, object] = {
    "id": "W", "name": "alpha", "status": "draining", "host": "h", "pool": "default", "slots": 8,
    "capabilities": ["python", "bash", "binary"],
    "details": {"runtimes": {"bash": "5.2", "python": "3.11.2"}, "cgroups": "v2"},
}  # fmt: skip
QUEUE: dict[str, object] = {
    "id": "Q", "name": "default", "pool": "default", "priority": 0, "max_concurrency": None, "paused": False,
}  # fmt: skip


def test_workers_are_shown_with_their_status_and_the_versions_they_have(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers?limit=100", {"results": [WORKER], "next": None})
    ended = punctual("workers", url=server.url)
    line = ended.stdout.splitlines()[1].split("\t")
    assert line[:3] == ["W", "alpha", "draining"]
    assert line[-1] == "bash 5.2, binary, python 3.11.2"


def test_a_worker_without_details_is_shown_all_the_same(server: RecordingServer) -> None:
    server.answer("GET", "/api/v1/workers?limit=100", {"results": [WORKER | {"details": None}], "next": None})
    assert punctual("workers", url=server.url).stdout.splitlines()[1].split("\t")[-1] == "bash, binary, python"


def test_a_worker_that_refuses_work_shows_the_reason(server: RecordingServer) -> None:
    weak = WORKER | {"status": "online", "refusal": "The sandbox\x1b[2J does not hold."}
    server.answer("GET", "/api/v1/workers?limit=100", {"results": [weak, WORKER], "next": None})
    ended = punctual("workers", url=server.url)
    assert [line.split("\t")[2] for line in ended.stdout.splitlines()[1:]] == ["online, refuses work", "draining"]
    assert ended.stderr.splitlines() == ["alpha refuses work. The sandbox\\x1b[2J does not hold."]


def test_queues_say_whether_they_are_paused(server: RecordingServer) -> None:
    narrow = QUEUE | {"name": "narrow", "paused": True, "max_concurrency": 2, "priority": 5, "team": "vision"}
    server.answer("GET", "/api/v1/queues?limit=100", {"results": [QUEUE, narrow], "next": None})
    ended = punctual("queues", url=server.url)
    assert ended.stdout.splitlines()[1:] == ["default\topen\tdefault\t0\t\t", "narrow\tpaused\tdefault\t5\t2\tvision"]
    assert json.loads(punctual("queues", "-o", "json", url=server.url).stdout) == [QUEUE, narrow]
