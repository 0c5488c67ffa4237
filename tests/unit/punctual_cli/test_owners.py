"""Staff see the owner of the jobs they act on, and confirm destructive actions."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.support.terminal import run_on_terminal
from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

ID = "0198c0de-0000-7000-8000-000000000001"
JOB: dict[str, object] = {"id": ID, "name": "nightly", "status": "scheduled", "owner": "bob", "schedules": []}
EXECUTION: dict[str, object] = {"id": "E", "job_id": ID, "job_name": "nightly", "status": "ready", "attempt": 0}


@pytest.fixture
def jobs(server: RecordingServer) -> RecordingServer:
    server.answer("GET", "/api/v1/jobs?name=nightly&limit=100", {"results": [JOB], "next": None})
    server.answer("GET", f"/api/v1/jobs/{ID}", JOB)
    server.answer("PATCH", f"/api/v1/jobs/{ID}", JOB)
    server.answer("DELETE", f"/api/v1/jobs/{ID}", b"", status=204)
    server.answer("PUT", f"/api/v1/jobs/{ID}/cancel", JOB | {"status": "cancelled"})
    server.answer("POST", f"/api/v1/jobs/{ID}/pause", JOB | {"status": "paused"})
    server.answer("POST", f"/api/v1/jobs/{ID}/resume", JOB)
    server.answer("POST", f"/api/v1/jobs/{ID}/execute", EXECUTION, status=201)
    backfill = {"id": "B", "job_id": ID, "status": "running", "created_count": 0, "expected_count": 7}
    range_ = {"from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z", "created_at": "2030-01-03T00:00:00Z"}
    server.answer("POST", f"/api/v1/jobs/{ID}/backfill", backfill | range_, status=201)
    return server


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["delete", "nightly", "--yes"], "Deleted nightly of bob."),
        (["cancel", "nightly", "--yes"], "The job nightly of bob is cancelled."),
        (["cancel", ID, "--yes"], "The job nightly of bob is cancelled."),
        (["pause", "nightly"], "The job nightly of bob is paused."),
        (["resume", "nightly"], "The job nightly of bob is scheduled."),
        (["edit", "nightly", "--priority", "3"], "Edited nightly of bob."),
        (["run", "nightly"], "Running nightly of bob."),
        (["backfill", "nightly", "--from", "7d"], "Backfilling 7 instants of nightly of bob."),
    ],
)
def test_changing_a_job_shows_its_owner(jobs: RecordingServer, words: list[str], said: str) -> None:
    ended = punctual(*words, url=jobs.url)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.startswith(said)


def on_a_terminal(*words: str, url: str, typed: bytes) -> tuple[int, str]:
    """Return the exit code and the question on stderr, answered with `typed`."""
    environment = os.environ | {"PUNCTUAL_URL": url, "PUNCTUAL_TOKEN": "t"}
    command = [sys.executable, "-m", "punctual_cli", *words]
    ended, _ = run_on_terminal(command, "stdin", environment=environment, typed=typed)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("verb", ["delete", "cancel"])
def test_deleting_or_cancelling_a_job_requires_confirmation(jobs: RecordingServer, verb: str) -> None:
    code, asked = on_a_terminal(verb, "nightly", url=jobs.url, typed=b"n\n")
    assert (code, "the job nightly of bob," in asked) == (130, True)
    unasked = punctual(verb, "nightly", url=jobs.url)
    assert (unasked.returncode, "use --yes" in unasked.stderr) == (2, True)
    assert {each.method for each in jobs.requests} == {"GET"}
    assert on_a_terminal(verb, "nightly", url=jobs.url, typed=b"y\n")[0] == 0
    assert {each.method for each in jobs.requests} > {"GET"}


def test_one_execution_is_cancelled_without_a_question(jobs: RecordingServer) -> None:
    jobs.answer("PUT", f"/api/v1/executions/{ID}/cancel", EXECUTION | {"status": "cancelled"})
    assert punctual("cancel", "--execution", ID, url=jobs.url).returncode == 0


@pytest.mark.parametrize(("owners", "shown"), [(["ann", "bob"], True), (["ann", "ann"], False)])
def test_the_owner_is_listed_where_there_are_several(server: RecordingServer, owners: list[str], shown: bool) -> None:
    listed = [JOB | {"owner": owner} for owner in owners]
    server.answer("GET", "/api/v1/jobs?limit=50", {"results": listed, "next": None})
    lines = [line.split("\t") for line in punctual("jobs", url=server.url).stdout.splitlines()]
    assert lines[0] == ["ID", "NAME", "STATUS", "NEXT RUN", *(["OWNER"] if shown else [])]
    assert [line[4:] for line in lines[1:]] == [[owner] if shown else [] for owner in owners]
    assert json.loads(punctual("jobs", "-o", "json", url=server.url).stdout) == listed
