"""GET /logs/search: parameters, results and pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from tests.integration.api.conftest import API
from tests.support.factories import make_job
from tests.support.log_writing import written_by


def search(client: APIClient, **query: Any) -> dict[str, Any]:
    response = client.get(f"{API}/logs/search", query)
    assert response.status_code == 200, response.content
    answer: dict[str, Any] = response.json()
    return answer


def lines(answer: dict[str, Any]) -> list[str]:
    return [each["line"] for each in answer["results"]]


def test_search_returns_lines_with_positions(
    owner: User, client: APIClient, stranger: APIClient, staff: APIClient
) -> None:
    job = make_job(owner=owner, name="nightly")
    fence = written_by(job, "all well\n\x1b[31mDisk full\x1b[0m <b>\u202e\n", stream="stderr")
    (data,) = search(client, q="disk full")["results"]
    assert data.pop("at").endswith("Z")
    assert data == {
        "execution_id": str(fence.execution_id),
        "job_id": str(job.id),
        "job_name": "nightly",
        "attempt": 1,
        "stream": "stderr",
        "sequence": 0,
        "line": "\x1b[31mDisk full\x1b[0m <b>\u202e",
        "matches": [[5, 9], [10, 14]],
    }
    assert lines(search(stranger, q="disk full")) == []
    assert len(lines(search(staff, q="disk full"))) == len(lines(search(staff, q="disk full", owner=owner.pk))) == 1
    assert stranger.get(f"{API}/logs/search", {"q": "disk", "job_id": str(job.id)}).status_code == 404
    assert stranger.get(f"{API}/logs/search", {"q": "disk", "owner": str(owner.pk)}).status_code == 403


def test_search_pages_follow_each_other(owner: User, client: APIClient) -> None:
    written_by(make_job(owner=owner), "".join(f"marker {number}\n" for number in range(7)))
    answer = search(client, q="MARK", mode="substring", limit=3)
    found_lines = lines(answer)
    while answer["next"]:
        assert answer["complete"] is True
        answer = client.get(answer["next"]).json()
        found_lines += lines(answer)
    assert found_lines == [f"marker {number}" for number in reversed(range(7))]
    assert answer["indexed_to"] is not None


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "q"),
        ({"q": "ab"}, "q"),
        ({"q": "-word"}, "q"),
        ({"q": "x" * 257, "mode": "substring"}, "q"),
        ({"q": "abc", "mode": "regex"}, "mode"),
        ({"q": "abc", "from": "yesterday"}, "from"),
        ({"q": "abc", "from": "0001-01-01T00:00:00+23:59"}, "from"),
        ({"q": "abc", "stream": "both"}, "stream"),
        ({"q": "abc", "limit": "501"}, "limit"),
        ({"q": "abc", "cursor": "x"}, "cursor"),
        ({"q": "abc", "cursor": "WzEsMl0"}, "cursor"),
        ({"q": "abc", "nonsense": "1"}, "nonsense"),
    ],
)
def test_invalid_search_parameter_is_named(client: APIClient, query: dict[str, str], field: str) -> None:
    response = client.get(f"{API}/logs/search", query)
    assert response.status_code == 400
    assert field in {error["field"] for error in response.json()["errors"]}


def test_large_utc_offset_is_accepted(owner: User, client: APIClient) -> None:
    written_by(make_job(owner=owner), "marker\n")
    assert lines(search(client, q="marker", **{"from": "2026-01-01T00:00:00+23:59"})) == ["marker"]
