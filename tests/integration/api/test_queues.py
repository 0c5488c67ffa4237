"""Queues over the API: looked at by all, made, tuned, paused and deleted by staff."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from jobs.errors import NotFound
from jobs.models import AuditEntry, Queue
from jobs.services import queues
from tests.factories import make_job
from tests.integration.api.conftest import API


@pytest.fixture
def batch(staff: APIClient) -> dict[str, Any]:
    made = staff.post(f"{API}/queues", {"name": "batch", "max_concurrency": 2}, format="json")
    assert made.status_code == 201, made.content
    assert made["Location"] == f"{API}/queues/{made.json()['id']}"
    shown: dict[str, Any] = made.json()
    return shown


def test_staff_makes_tunes_and_deletes_a_queue(staff: APIClient, client: APIClient, batch: dict[str, Any]) -> None:
    address = f"{API}/queues/{batch['id']}"
    assert (batch["pool"], batch["priority"], batch["max_concurrency"], batch["aging_seconds"]) == ("default", 0, 2, 60)
    seen = client.get(address)
    assert seen.json() == batch
    changes = {"priority": -5, "max_concurrency": None, "paused": True, "pool": "gpu", "aging_seconds": 1.5}
    edited = staff.patch(address, changes, format="json", HTTP_IF_MATCH=seen["ETag"])
    assert edited.json() == batch | changes
    assert staff.patch(address, {"priority": 0}, format="json", HTTP_IF_MATCH=seen["ETag"]).status_code == 412
    assert staff.patch(address, {"paused": False}, format="json").json()["priority"] == -5
    assert staff.delete(address, HTTP_IF_MATCH=seen["ETag"]).status_code == 412
    assert staff.delete(address).status_code == 204
    assert client.get(address).status_code == 404


def test_a_queue_that_is_needed_stays(staff: APIClient, batch: dict[str, Any]) -> None:
    make_job(queue=Queue.objects.get(name="batch"))
    for queue in Queue.objects.filter(name__in=["batch", "default"]):
        assert staff.delete(f"{API}/queues/{queue.id}").status_code == 409
    assert Queue.objects.filter(name__in=["batch", "default"]).count() == 2


def test_what_was_just_deleted_is_not_there(batch: dict[str, Any]) -> None:
    edited, deleted = (Queue.objects.get(id=batch["id"]) for _ in range(2))
    Queue.objects.filter(id=batch["id"]).delete()
    with pytest.raises(NotFound):
        queues.save_queue(edited, changed=["priority"])
    with pytest.raises(NotFound):
        queues.delete_queue(deleted)
    assert not AuditEntry.objects.filter(action="queue.deleted").exists()


def test_a_name_is_taken_once(staff: APIClient, batch: dict[str, Any]) -> None:
    again = staff.post(f"{API}/queues", {"name": "batch"}, format="json")
    assert (again.status_code, again.json()["detail"]) == (
        409, "There is a queue 'batch' already; choose another name."
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "Batch!"}, "name"),
        ({"name": "a", "pool": "no pool"}, "pool"),
        ({"name": "a", "priority": 101}, "priority"),
        ({"name": "a", "priority": 1.5}, "priority"),
        ({"name": "a", "max_concurrency": 0}, "max_concurrency"),
        ({"name": "a", "max_concurrency": 2**31}, "max_concurrency"),
        ({"name": "a", "aging_seconds": 86_401}, "aging_seconds"),
        ({"name": "a", "paused": "perhaps"}, "paused"),
        ({"name": "a", "colour": "red"}, "colour"),
    ],
)
def test_what_is_no_queue_is_refused(staff: APIClient, body: dict[str, Any], field: str) -> None:
    before = Queue.objects.count()
    refused = staff.post(f"{API}/queues", body, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, field)
    assert Queue.objects.count() == before


def test_a_name_stays(staff: APIClient, batch: dict[str, Any]) -> None:
    refused = staff.patch(f"{API}/queues/{batch['id']}", {"name": "other"}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "name")
