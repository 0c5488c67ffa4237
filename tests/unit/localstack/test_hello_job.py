"""The hello job, when the only worker refuses work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.startup.hello_job import run_hello_job
from tests.unit.punctual_cli.server import RecordingServer

API = "/api/v1"
OWN = {"id": "J", "owner": "admin", "artifact": "A"}
EARLIER, OTHER, FOREIGN = OWN | {"id": "F"}, OWN | {"id": "O", "artifact": "B"}, OWN | {"id": "X", "owner": "alice"}
READY = {"id": "E", "status": "ready"}
ENDED = {"id": "E", "status": "succeeded", "exit_code": 0}


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    running = RecordingServer()
    running.answer("POST", f"{API}/jobs", OWN, status=201)
    running.answer("GET", f"{API}/executions?job_id=J", {"results": [READY]}, times=3)
    running.answer("GET", f"{API}/executions?job_id=J", {"results": [ENDED]})
    running.answer("GET", f"{API}/executions/E/logs", b"hello\n")
    running.answer("GET", f"{API}/jobs?name=hello", {"results": [OWN, EARLIER, OTHER, FOREIGN]})
    running.answer("DELETE", f"{API}/jobs/F", b"", status=204)
    yield running
    running.close()


@pytest.fixture
def layout(server: RecordingServer, tmp_path: Path) -> Layout:
    return Layout(tmp_path, int(server.url.rpartition(":")[2]), 1)


def test_refusing_worker_fails_at_once(server: RecordingServer, layout: Layout) -> None:
    refusing = {"results": [{"refusal": "Its sandbox does not hold."}]}
    server.answer("GET", f"{API}/workers?status=online", refusing)
    with pytest.raises(StackError, match=r"The worker refuses work\. Its sandbox does not hold\."):
        run_hello_job(layout, "token", lambda: None)


@pytest.mark.parametrize("workers", [[], [{"refusal": ""}], [{"refusal": "No."}, {"refusal": ""}]])
def test_other_workers_are_awaited(server: RecordingServer, layout: Layout, workers: list[dict[str, str]]) -> None:
    server.answer("GET", f"{API}/workers?status=online", {"results": workers})
    assert run_hello_job(layout, "token", lambda: None).log == "hello\n"


def test_only_hello_jobs_of_earlier_starts_are_deleted(server: RecordingServer, layout: Layout) -> None:
    server.answer("GET", f"{API}/workers?status=online", {"results": []})
    run_hello_job(layout, "token", lambda: None)
    assert [each.path for each in server.requests if each.method == "DELETE"] == [f"{API}/jobs/F"]
