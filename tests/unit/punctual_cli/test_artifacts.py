"""`artifacts`, `outputs delete` and `usage` as processes: their requests and output."""

from __future__ import annotations

import json

import pytest

from tests.unit.punctual_cli.server import RecordingServer
from tests.unit.punctual_cli.test_command_line import punctual

ID = "0198c0de-0000-7000-8000-000000000001"
ARTIFACT: dict[str, object] = {
    "id": ID, "sha256": "ab" * 32, "size": 1234, "status": "stored", "created_at": "2030-01-01T00:00:00Z",
    "in_use": True,
}  # fmt: skip
STORAGE: dict[str, object] = {
    "used_bytes": 7 * 1024 * 1024, "artifacts_bytes": 4 * 1024 * 1024, "outputs_bytes": 2 * 1024 * 1024,
    "logs_bytes": 1024 * 1024, "quota_bytes": 10 * 1024 * 1024,
}  # fmt: skip


def test_artifacts_are_listed(server: RecordingServer) -> None:
    idle = ARTIFACT | {"status": "announced", "in_use": False}
    server.answer("GET", "/api/v1/artifacts?limit=50", {"results": [ARTIFACT, idle], "next": None})
    lines = punctual("artifacts", url=server.url).stdout.splitlines()
    assert lines[1:] == [
        f"{ID}\tstored\tyes\t1234\t2030-01-01 00:00:00Z\t{'ab' * 32}",
        f"{ID}\tannounced\tno\t1234\t2030-01-01 00:00:00Z\t{'ab' * 32}",
    ]
    assert json.loads(punctual("artifacts", "-o", "json", url=server.url).stdout) == [ARTIFACT, idle]


@pytest.mark.parametrize(
    ("words", "address"),
    [(("artifacts", "delete", ID), f"artifacts/{ID}"), (("outputs", "delete", ID), f"executions/{ID}/outputs")],
)
def test_deletion_requires_confirmation(server: RecordingServer, words: tuple[str, ...], address: str) -> None:
    server.answer("DELETE", f"/api/v1/{address}", b"", status=204)
    unasked = punctual(*words, url=server.url)
    assert (unasked.returncode, server.requests) == (2, [])
    assert "--yes" in unasked.stderr
    assert punctual(*words[:-1], "x", "--yes", url=server.url).returncode == 2
    assert server.requests == []
    deleted = punctual(*words, "--yes", url=server.url)
    assert (deleted.returncode, deleted.stdout) == (0, "")
    assert ID in deleted.stderr
    assert [(each.method, each.path) for each in server.requests] == [("DELETE", f"/api/v1/{address}")]


def test_a_refused_deletion_shows_the_reason(server: RecordingServer) -> None:
    server.answer("DELETE", f"/api/v1/artifacts/{ID}", {"detail": "Jobs still use the artifact: a."}, status=409)
    refused = punctual("artifacts", "delete", ID, "--yes", url=server.url)
    assert refused.returncode == 4
    assert "Jobs still use the artifact: a." in refused.stderr


@pytest.mark.parametrize(("quota", "last"), [(STORAGE["quota_bytes"], "quota\t10.0"), (0, "used\t7.0")])
def test_usage_is_shown_in_megabytes(server: RecordingServer, quota: object, last: str) -> None:
    storage = STORAGE | {"quota_bytes": quota}
    server.answer("GET", "/api/v1/usage", {"storage": storage})
    lines = punctual("usage", url=server.url).stdout.splitlines()
    assert lines[1:5] == ["artifacts\t4.0", "outputs\t2.0", "logs\t1.0", "used\t7.0"]
    assert lines[-1] == last
    assert json.loads(punctual("usage", "-o", "json", url=server.url).stdout) == {"storage": storage}


def test_usage_shows_storage_and_quotas(server: RecordingServer) -> None:
    counts = {
        "jobs": {"used": 3, "quota": 5}, "concurrent_executions": {"used": 1, "quota": 0},
        "requests_per_minute": {"quota": 6000},
    }  # fmt: skip
    storage = {"used_bytes": 0, "quota_bytes": 0}
    server.answer("GET", "/api/v1/usage", {"storage": storage, **counts})
    lines = punctual("usage", url=server.url).stdout.splitlines()
    assert lines[-4:] == [
        "QUOTA\tUSED\tLIMIT", "jobs\t3\t5", "concurrent executions\t1\tno limit", "requests per minute\t\t6000",
    ]  # fmt: skip
