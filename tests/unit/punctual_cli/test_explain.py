"""`explain` as a process: its requests and output."""

from __future__ import annotations

import json

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

EXECUTION = "0198c0de-0000-7000-8000-000000000001"
ADDRESS = f"/api/v1/executions/{EXECUTION}/explain"
TOLD = {
    "execution_id": EXECUTION,
    "status": "ready",
    "words": "It waits: its queue is at its limit.",
    "gates": [
        {"gate": "time", "open": True, "words": "Its time has come."},
        {"gate": "queue_limit", "open": False, "words": "2 of at most 2."},
    ],
}


def test_the_closed_gates_are_shown_and_on_request_all(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, TOLD)
    lines = punctual("explain", EXECUTION, url=server.url).stdout.splitlines()
    assert lines[0] == TOLD["words"]
    assert lines[1:] == ["GATE\tIS\tWHY", "queue_limit\tclosed\t2 of at most 2."]
    every = punctual("explain", EXECUTION, "--all", url=server.url).stdout
    assert "time\topen\tIts time has come." in every


def test_json_is_the_answer_itself(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, TOLD)
    assert json.loads(punctual("explain", EXECUTION, "-o", "json", url=server.url).stdout) == TOLD


def test_a_run_may_name_its_worker(server: RecordingServer) -> None:
    address = f"/api/v1/jobs/{EXECUTION}/execute"
    server.answer("POST", address, {"id": "E", "job_id": EXECUTION, "status": "ready"}, status=201)
    workers = [{"id": word, "name": word.lower(), "status": "online"} for word in ("V", "W")]
    server.answer("GET", "/api/v1/workers?limit=100", {"results": workers, "next": None})
    punctual("run", EXECUTION, "--worker", "w", url=server.url)
    punctual("run", EXECUTION, url=server.url)
    sent = [json.loads(asked.body) for asked in server.requests if asked.method == "POST"]
    assert sent == [{"worker_id": "W"}, {}]
    unknown = punctual("run", EXECUTION, "--worker", "x", url=server.url)
    assert (unknown.returncode, "There is no worker called 'x'" in unknown.stderr) == (4, True)
