"""/artifacts: bytes go directly to the store, and only their owner may use them."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest
from rest_framework.test import APIClient

from jobs.storage import s3
from tests.integration.api.conftest import API, job_body

pytestmark = pytest.mark.usefixtures("bucket")


def announce(client: APIClient, data: bytes) -> dict[str, Any]:
    body = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    response = client.post(f"{API}/artifacts", body, format="json")
    assert response.status_code == 201, response.content
    announced: dict[str, Any] = response.json()
    return announced


def send(announced: dict[str, Any], data: bytes) -> httpx.Response:
    upload = announced["upload"]
    return httpx.request(upload["method"], upload["url"], content=data, headers=upload["headers"], timeout=10)


def test_upload_verify_and_use(client: APIClient) -> None:
    data = b"\x7fELF program"
    announced = announce(client, data)
    assert announced["status"] == "announced"
    body = job_body(runtime="binary", script=None, artifact=announced["id"])
    assert client.post(f"{API}/jobs", body, format="json").json()["errors"][0]["field"] == "artifact"
    assert send(announced, data).status_code == 200

    completed = client.post(f"{API}/artifacts/{announced['id']}/complete")

    assert (completed.status_code, completed.json()["status"]) == (200, "stored")
    assert b"".join(s3.read_artifact(announced["sha256"])) == data
    assert announce(client, data)["upload"] is None
    assert client.post(f"{API}/artifacts/{announced['id']}/complete").status_code == 200
    assert client.post(f"{API}/jobs", body, format="json").status_code == 201


def test_store_rejects_other_bytes(client: APIClient) -> None:
    announced = announce(client, b"announced bytes")

    assert send(announced, b"different bytes").status_code >= 400
    response = client.post(f"{API}/artifacts/{announced['id']}/complete")
    assert response.status_code == 409
    assert "upload" in response.json()["detail"]


def test_hash_alone_gives_no_access_to_artifact(client: APIClient, stranger: APIClient) -> None:
    data = b"somebody's secret program"
    own = announce(client, data)
    send(own, data)
    client.post(f"{API}/artifacts/{own['id']}/complete")

    foreign = announce(stranger, data)

    assert foreign["upload"] is not None
    assert foreign["id"] != own["id"]
    assert stranger.post(f"{API}/artifacts/{foreign['id']}/complete").status_code == 409
    body = job_body(runtime="binary", script=None, artifact=own["id"])
    assert stranger.post(f"{API}/jobs", body, format="json").status_code == 400
    assert send(foreign, data).status_code == 200
    assert stranger.post(f"{API}/artifacts/{foreign['id']}/complete").json()["status"] == "stored"


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("sha256", {"sha256": "A" * 64}),
        ("sha256", {"sha256": "a" * 64 + "\n"}),
        ("size", {"size": 0}),
        ("size", {"size": 5 * 1024**3 + 1}),
        ("name", {"name": "x"}),
    ],
)
def test_invalid_announcement_is_rejected(client: APIClient, field: str, changes: dict[str, Any]) -> None:
    response = client.post(f"{API}/artifacts", {"sha256": "a" * 64, "size": 1} | changes, format="json")

    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == field
