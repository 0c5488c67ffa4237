"""Attempts are shown, and lost outputs are reported wherever outputs are shown."""

from __future__ import annotations

import json

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

EXECUTION = "0198c0de-0000-7000-8000-000000000001"
ADDRESS = f"/api/v1/executions/{EXECUTION}"
ENDED: dict[str, object] = {
    "id": EXECUTION, "job_id": "J", "job_name": "nightly", "status": "succeeded", "attempt": 2, "exit_code": 0,
}  # fmt: skip
LOST: dict[str, object] = {
    "number": 1, "worker_id": "V", "placed_at": "2030-01-01T00:00:00Z", "started_at": None,
    "ended_at": "2030-01-01T00:00:09Z", "reason": "worker_lost", "exit_code": None, "signal": None, "error": "",
}  # fmt: skip
LAST: dict[str, object] = LOST | {
    "number": 2, "worker_id": "W", "started_at": "2030-01-01T00:01:00.5Z", "ended_at": "2030-01-01T00:02:00Z",
    "reason": "exit", "exit_code": 0, "receipt": {"cgroup": "v2"},
    "error": "a\x1bb: not an acceptable file name; left out\nlatest: neither a regular file nor a directory; left out",
}  # fmt: skip
EVENT: dict[str, object] = {
    "id": "E1", "created_at": "2030-01-01T00:00:09Z", "attempt": 1, "name": "execution.worker_lost",
    "detail": {"worker_id": "V", "note": None},
}  # fmt: skip
NOTES = [
    "Note: a\\x1bb: not an acceptable file name; left out",
    "Note: latest: neither a regular file nor a directory; left out",
]


@pytest.fixture(autouse=True)
def _known(server: RecordingServer) -> None:
    server.answer("GET", ADDRESS, ENDED)
    server.answer("GET", f"{ADDRESS}/attempts", {"results": [LOST, LAST]})
    server.answer("GET", f"{ADDRESS}/events", {"results": [EVENT]})
    server.answer("GET", f"{ADDRESS}/outputs", {"results": []})
    for attempt in (1, 2):
        server.answer("GET", f"{ADDRESS}/logs?format=json&attempt={attempt}", {"results": [], "ended": True})


def test_show_has_a_line_for_every_attempt_and_event(server: RecordingServer) -> None:
    shown = punctual("show", EXECUTION, url=server.url)
    rows = dict(line.split("\t") for line in shown.stdout.splitlines())
    assert rows["attempt 1"] == "started 2030-01-01 00:00:00Z, ended 2030-01-01 00:00:09Z, worker lost, worker V"
    assert rows["attempt 2"].startswith("started 2030-01-01 00:01:00Z, ended 2030-01-01 00:02:00Z, exit code 0, worker")
    assert rows["attempt 2"].endswith(f" · {NOTES[1].removeprefix('Note: ')}")
    assert rows["event 1"] == "2030-01-01 00:00:09Z worker lost, worker_id V"
    assert shown.stderr.splitlines() == NOTES


def test_show_gives_programs_all_of_it(server: RecordingServer) -> None:
    told = json.loads(punctual("show", EXECUTION, "-o", "json", url=server.url).stdout)
    assert told == ENDED | {"attempts": [LOST, LAST], "events": [EVENT]}
    assert "attempts.1.receipt.cgroup\tv2" in punctual("show", EXECUTION, "-o", "wide", url=server.url).stdout


@pytest.mark.parametrize(
    ("words", "code"), [(["outputs", "list", EXECUTION], 0), (["outputs", "get", EXECUTION], 4)], ids=["list", "get"]
)
def test_lost_outputs_are_reported_with_the_outputs(server: RecordingServer, words: list[str], code: int) -> None:
    ended = punctual(*words, url=server.url)
    assert ended.returncode == code
    assert [line for line in ended.stderr.splitlines() if line.startswith("Note:")] == NOTES


@pytest.mark.parametrize("output", [[], ["-o", "json"]])
def test_lost_outputs_are_reported_after_waiting(server: RecordingServer, output: list[str]) -> None:
    server.answer("POST", f"/api/v1/jobs/{EXECUTION}/execute", ENDED, status=201)
    for seconds in range(15, 21):
        server.answer("GET", f"{ADDRESS}?wait={seconds}", ENDED)
    ended = punctual("run", EXECUTION, "--wait", *output, url=server.url)
    assert (ended.returncode, ended.stderr.splitlines()[1:]) == (0, NOTES)


def test_an_end_is_the_same_if_its_attempts_cannot_be_read(server: RecordingServer) -> None:
    other = EXECUTION.replace("1", "2")
    server.answer("POST", f"/api/v1/jobs/{EXECUTION}/execute", ENDED | {"id": other}, status=201)
    server.answer("GET", f"/api/v1/executions/{other}", ENDED | {"id": other, "status": "failed", "exit_code": 7})
    for attempt in (1, 2):
        address = f"/api/v1/executions/{other}/logs?format=json&attempt={attempt}"
        server.answer("GET", address, {"results": [], "ended": True})
    ended = punctual("run", EXECUTION, "--wait", url=server.url)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (7, 1)
