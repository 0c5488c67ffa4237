"""A measurement takes its numbers from the server's stamps, and deletes what it submitted, whatever happens."""

from __future__ import annotations

import pytest

from cli.__main__ import main
from cli.errors import CliError, WaitTimeoutError
from cli.load import Spread, Submitted, deleting, measure, summarise
from cli.records import Execution
from tests.unit.cli.server import RecordingServer

JOB = {"id": "J", "name": "bench", "status": "waiting", "schedules": []}
RUNNING = {"id": "E", "job_id": "J", "status": "running", "attempt": 1}


def execution(second: int, *, status: str = "succeeded", started: bool = True) -> Execution:
    stamps = {
        "fired_at": f"2030-01-01T00:00:0{second}Z",
        "started_at": f"2030-01-01T00:00:0{second}.250000Z" if started else None,
        "ended_at": f"2030-01-01T00:00:0{second}.500000Z",
    }
    return Execution.parse({"id": "E", "job_id": "J", "status": status, "attempt": 1, **stamps})


def test_numbers_come_from_the_stamps() -> None:
    submitted = Submitted(("a", "b"), (0.01, 0.03), lasted=0.5)
    found = summarise(submitted, [execution(0), execution(3, status="failed")])
    assert (found.jobs, found.failed, found.submits_per_second) == (2, 1, 4.0)
    assert found.ends_per_second == round(2 / 3.5, 1)
    assert found.submit == Spread(p50=20.0, p99=30.0, most=30.0)
    assert found.submitted_to_started.most == found.started_to_ended.most == 250.0
    with pytest.raises(CliError, match="None of the jobs was started"):
        summarise(submitted, [execution(0, started=False)])


def test_what_was_submitted_is_deleted_also_when_it_does_not_end(server: RecordingServer) -> None:
    server.answer("POST", "/api/v1/jobs", JOB, status=201)
    server.answer("GET", "/api/v1/executions?limit=100", {"results": [RUNNING], "next": None})
    server.answer("DELETE", "/api/v1/jobs/J", {}, status=204)
    with pytest.raises(WaitTimeoutError, match="1 of 1 jobs"):
        measure(server.client, jobs=1, at_once=1, limit_seconds=0)
    assert server.requests[-1].method == "DELETE"


def test_what_cannot_be_deleted_is_told_after_all_were_tried(server: RecordingServer) -> None:
    server.answer("DELETE", "/api/v1/jobs/a", {"detail": "No."}, status=409)
    server.answer("DELETE", "/api/v1/jobs/b", {}, status=204)
    with (
        pytest.raises(CliError, match="1 jobs of the measurement could not be deleted, such as a"),
        deleting(server.client, ["a", "b"], 1),
    ):
        pass
    assert [asked.path for asked in server.requests] == ["/api/v1/jobs/a", "/api/v1/jobs/b"]


def test_a_server_of_others_is_not_loaded_unasked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PUNCTUAL_URL", "http://punctual.invalid")
    monkeypatch.setenv("PUNCTUAL_TOKEN", "t")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    assert main(["bench"]) == 2
    assert "--yes" in capsys.readouterr().err
