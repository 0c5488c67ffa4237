"""Limits on logs and outputs of one attempt, across requests."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from jobs.domain import limits
from jobs.models import LogChunk
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job
from tests.support.rest_workers import RestWorker, chunk, join

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(owner: User) -> RestWorker:
    return join()


@pytest.fixture
def execution(owner: User, worker: RestWorker) -> Any:
    return worker.take(make_execution(job=make_job(owner=owner)))


def again(worker: RestWorker, execution: Any) -> None:
    """Release the attempt and claim the next one."""
    assert worker.report(execution, "complete", reason="released").status_code == 200
    worker.take(execution)


def log(worker: RestWorker, execution: Any, *chunks: dict[str, Any]) -> None:
    assert worker.report(execution, "logs", chunks=list(chunks)).status_code == 204


def stored(execution: Any) -> list[bytes]:
    rows = LogChunk.objects.filter(execution_id=execution.id, attempt=execution.attempt).order_by("sequence")
    return [bytes(data) for data in rows.values_list("data", flat=True)]


def test_log_over_size_limit_is_truncated_and_marked(
    client: APIClient, worker: RestWorker, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LOG_BYTES", 10)
    monkeypatch.setattr(limits, "LOG_CHUNK_OVERHEAD_BYTES", 0)
    log(worker, execution, chunk(0, b"four"))
    log(worker, execution, chunk(0, b"four"))
    log(worker, execution, chunk(1, b"four"))
    attempt = execution.attempts.get()
    assert (attempt.log_bytes, attempt.log_truncated) == (8, False), "repeated chunks count once"
    log(worker, execution, chunk(2, b"xx"), chunk(3, b"x"), chunk(4, b""))
    log(worker, execution, chunk(5, b""))
    *kept, mark = stored(execution)
    assert kept == [b"four", b"four", b"xx"], "up to the limit, and nothing after the gap"
    assert mark.startswith(b"\n[punctual] Log cut here:")
    attempt.refresh_from_db()
    assert (attempt.log_bytes, attempt.log_truncated) == (10 + len(mark), True)
    worker.report(execution, "start")
    assert worker.report(execution, "complete", reason="exit", exit_code=0, log_truncated=False).status_code == 200
    (values,) = client.get(f"{API}/executions/{execution.id}/attempts").json()["results"]
    assert values["log_truncated"] is True, "independent of the worker's report"


def test_log_over_chunk_limit_is_truncated_and_marked(
    worker: RestWorker, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LOG_CHUNKS", 2)
    log(worker, execution, *(chunk(n, b"x") for n in range(4)))
    *kept, mark = stored(execution)
    assert kept == [b"x", b"x"]
    assert b"Log cut here" in mark
    assert execution.attempts.get().log_truncated


def test_log_limit_applies_per_attempt(worker: RestWorker, execution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOG_BYTES", 4)
    monkeypatch.setattr(limits, "LOG_CHUNK_OVERHEAD_BYTES", 0)
    log(worker, execution, chunk(0, b"four"), chunk(1, b"more"))
    again(worker, execution)
    log(worker, execution, chunk(0, b"anew"))
    assert stored(execution) == [b"anew"]
    marks = execution.attempts.order_by("number").values_list("log_truncated", flat=True)
    assert list(marks) == [True, False]


def announce(worker: RestWorker, execution: Any, name: str, size: int = 1) -> Any:
    return worker.report(execution, "outputs", size=size, sha256=hashlib.sha256(name.encode()).hexdigest())


def assert_refused(response: Any) -> None:
    assert response.status_code == 400
    assert [error["field"] for error in response.json()["errors"]] == ["size"]


def test_number_of_outputs_is_limited_and_repeats_count_once(
    worker: RestWorker, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OUTPUT_FILES", 2)
    for name in ("a", "a", "b", "b", "b"):
        assert announce(worker, execution, name).status_code == 201
    assert_refused(announce(worker, execution, "c"))
    assert announce(worker, execution, "b").status_code == 201
    attempt = execution.attempts.get()
    assert (attempt.output_files, attempt.output_bytes) == (2, 2)
    again(worker, execution)
    assert announce(worker, execution, "c").status_code == 201


def test_total_size_of_outputs_is_limited(worker: RestWorker, execution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OUTPUT_BYTES", 10)
    assert announce(worker, execution, "a", 6).status_code == 201
    assert_refused(announce(worker, execution, "b", 5))
    assert announce(worker, execution, "c", 4).status_code == 201
    assert_refused(announce(worker, execution, "d", 1))
    assert announce(worker, execution, "e", 0).status_code == 201


def test_announcement_with_other_size_counts_again(
    worker: RestWorker, execution: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_OUTPUT_BYTES", 10)
    for size in (0, 6, 6, 0):
        assert announce(worker, execution, "a", size).status_code == 201
    assert_refused(announce(worker, execution, "a", 6))
    attempt = execution.attempts.get()
    assert (attempt.output_files, attempt.output_bytes) == (3, 6)


@pytest.mark.parametrize(("verb", "body"), [("logs", {"chunks": [chunk(0, b"x")]}), ("outputs", {})])
def test_limit_check_takes_constant_number_of_queries(
    worker: RestWorker, execution: Any, verb: str, body: dict[str, Any]
) -> None:
    def statements(name: str) -> int:
        announcement = body or {"size": 1, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        with CaptureQueriesContext(connection) as captured:
            assert worker.report(execution, verb, **announcement).status_code < 300
        return sum("jobs_attempt" in query["sql"] or "jobs_logchunk" in query["sql"] for query in captured)

    assert (statements("a"), statements("b")) == (1, 1)
