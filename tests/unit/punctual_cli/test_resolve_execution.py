"""A job in place of an execution means its newest one; commands that change something refuse it."""

from __future__ import annotations

import json

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual
from tests.unit.punctual_cli.test_results import on_a_terminal

JOB_ID = "0198c0de-0000-7000-8000-000000000001"
EXECUTION_ID = "0198c0de-0000-7000-8000-000000000002"
JOB: dict[str, object] = {"id": JOB_ID, "name": "night owl", "status": "scheduled", "owner": "ann", "schedules": []}
EXECUTION: dict[str, object] = {"id": EXECUTION_ID, "job_id": JOB_ID, "status": "succeeded", "attempt": 1}
ADDRESS = f"/api/v1/executions/{EXECUTION_ID}"
NEWEST = f"The newest execution of night owl of ann: {EXECUTION_ID}\n"
READING = [["logs"], ["logs", "-f"], ["explain"]]


@pytest.fixture
def jobs(server: RecordingServer) -> RecordingServer:
    server.answer("GET", "/api/v1/jobs?name=night+owl&limit=100", {"results": [JOB], "next": None})
    server.answer("GET", f"/api/v1/jobs/{JOB_ID}", JOB)
    server.answer("GET", ADDRESS, EXECUTION)
    server.answer("GET", f"{ADDRESS}/logs", b"hoot\n")
    chunk = {"sequence": 0, "stream": "stdout", "text": "hoot\n"}
    server.answer("GET", f"{ADDRESS}/logs?format=json&attempt=1", {"results": [chunk], "ended": True})
    server.answer("GET", f"{ADDRESS}/logs?format=json&attempt=1&after=0", {"results": [], "ended": True})
    server.answer("GET", f"{ADDRESS}/explain", {"words": "hoot", "gates": []})
    return server


@pytest.mark.parametrize("words", READING)
@pytest.mark.parametrize("named", ["night owl", JOB_ID])
def test_of_a_job_the_newest_execution_is_looked_at(jobs: RecordingServer, words: list[str], named: str) -> None:
    jobs.answer("GET", f"/api/v1/executions?job_id={JOB_ID}&limit=1", {"results": [EXECUTION], "next": None})
    ended = punctual(*words, named, url=jobs.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hoot\n", NEWEST)


@pytest.mark.parametrize("words", READING)
def test_an_execution_is_looked_at_without_a_word_or_another_question(jobs: RecordingServer, words: list[str]) -> None:
    ended = punctual(*words, EXECUTION_ID, url=jobs.url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hoot\n", "")
    assert {each.path.partition("?")[0].removesuffix("/logs").removesuffix("/explain") for each in jobs.requests} == {
        ADDRESS
    }


def test_a_job_without_executions_is_reported(jobs: RecordingServer) -> None:
    jobs.answer("GET", f"/api/v1/executions?job_id={JOB_ID}&limit=1", {"results": [], "next": None})
    ended = punctual("logs", "night owl", url=jobs.url)
    assert (ended.returncode, ended.stdout) == (4, "")
    assert "has no execution yet: punctual run 'night owl' makes one." in ended.stderr


def test_an_unknown_id_gets_the_servers_error(jobs: RecordingServer) -> None:
    ended = punctual("logs", JOB_ID.replace("1", "9"), url=jobs.url)
    assert (ended.returncode, ended.stderr) == (4, "punctual: There is nothing here.\n")


def test_retry_refuses_a_job(jobs: RecordingServer) -> None:
    ended = punctual("retry", JOB_ID, url=jobs.url)
    assert ended.returncode == 4
    assert f"is the job night owl: punctual executions --job {JOB_ID} lists its executions." in ended.stderr
    assert [each.path for each in jobs.requests if each.method != "GET"] == [f"/api/v1/executions/{JOB_ID}/retry"]


@pytest.mark.parametrize(
    ("words", "path", "said"),
    [
        (["jobs"], "jobs?limit=50", "No jobs yet: punctual submit FILE makes one."),
        (["jobs", "--priority", "0"], "jobs?priority=0&limit=50", "No job matches."),
        (["executions"], "executions?limit=50", "No executions yet: punctual run JOB makes one."),
        (["executions", "--status", "failed"], "executions?status=failed&limit=50", "No execution matches."),
        (["dlq"], "dead-letters?status=open&limit=50", "No dead letters."),
        (["secrets"], "secrets?limit=50", "No secrets yet: punctual secrets set NAME makes one."),
    ],
)
def test_an_empty_list_prints_a_hint(server: RecordingServer, words: list[str], path: str, said: str) -> None:
    server.answer("GET", f"/api/v1/{path}", {"results": [], "next": None})
    told = punctual(*words, url=server.url)
    assert (told.returncode, told.stderr, told.stdout.count("\n")) == (0, f"{said}\n", 1)
    data = punctual(*words, "-o", "json", url=server.url)
    assert (json.loads(data.stdout), data.stderr) == ([], "")
    assert on_a_terminal(*words, url=server.url, columns=80) == "", "no titles of nothing"
