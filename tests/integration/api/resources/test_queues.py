"""/queues: readable by all users, managed by staff."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.dispatch import queues
from jobs.domain.errors import NotFound
from jobs.models import AuditEntry, Queue, Team
from tests.integration.api.conftest import API, job_body
from tests.support.factories import make_job


@pytest.fixture
def batch(staff: APIClient) -> dict[str, Any]:
    created = staff.post(f"{API}/queues", {"name": "batch", "max_concurrency": 2}, format="json")
    assert created.status_code == 201, created.content
    assert created["Location"] == f"{API}/queues/{created.json()['id']}"
    data: dict[str, Any] = created.json()
    return data


def test_staff_creates_edits_and_deletes_queue(staff: APIClient, client: APIClient, batch: dict[str, Any]) -> None:
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


def test_queue_in_use_cannot_be_deleted(staff: APIClient, batch: dict[str, Any]) -> None:
    make_job(queue=Queue.objects.get(name="batch"))
    for queue in Queue.objects.filter(name__in=["batch", "default"]):
        assert staff.delete(f"{API}/queues/{queue.id}").status_code == 409
    assert Queue.objects.filter(name__in=["batch", "default"]).count() == 2


def test_queue_deleted_meanwhile_is_not_found(batch: dict[str, Any]) -> None:
    edited, deleted = (Queue.objects.get(id=batch["id"]) for _ in range(2))
    Queue.objects.filter(id=batch["id"]).delete()
    with pytest.raises(NotFound):
        queues.save_queue(edited, changed=["priority"])
    with pytest.raises(NotFound):
        queues.delete_queue(deleted)
    assert not AuditEntry.objects.filter(action="queue.deleted").exists()


def test_name_is_unique(staff: APIClient, batch: dict[str, Any]) -> None:
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
def test_invalid_queue_is_rejected(staff: APIClient, body: dict[str, Any], field: str) -> None:
    before = Queue.objects.count()
    refused = staff.post(f"{API}/queues", body, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, field)
    assert Queue.objects.count() == before


def test_queue_name_cannot_be_changed(staff: APIClient, batch: dict[str, Any]) -> None:
    refused = staff.patch(f"{API}/queues/{batch['id']}", {"name": "other"}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "name")


@pytest.fixture
def vision(staff: APIClient, owner: User) -> Team:
    created = staff.post(f"{API}/teams", {"name": "vision", "members": [owner.username]}, format="json")
    assert created.status_code == 201, created.content
    return Team.objects.get(name="vision")


@pytest.fixture
def closed(staff: APIClient, vision: Team) -> str:
    created = staff.post(f"{API}/queues", {"name": "gpu", "team": "vision"}, format="json")
    assert (created.status_code, created.json()["team"]) == (201, "vision")
    return f"{API}/queues/{created.json()['id']}"


def test_team_queue_accepts_jobs_of_members_and_staff_only(
    client: APIClient, stranger: APIClient, staff: APIClient, closed: str, bucket: None
) -> None:
    body = job_body(queue="gpu", script="true")
    assert client.post(f"{API}/jobs", body, format="json").status_code == 201
    assert staff.post(f"{API}/jobs", body, format="json").status_code == 201
    refused = stranger.post(f"{API}/jobs", body, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "queue")
    assert "members of the team 'vision' only" in refused.json()["detail"]
    many = stranger.post(f"{API}/jobs/bulk", {"jobs": [job_body(script="true"), body]}, format="json")
    assert (many.status_code, many.json()["errors"][0]["field"]) == (403, "jobs.1.queue")
    other = stranger.post(f"{API}/jobs", job_body(script="true"), format="json").json()
    assert stranger.patch(f"{API}/jobs/{other['id']}", {"queue": "gpu"}, format="json").status_code == 403
    assert staff.patch(closed, {"team": None}, format="json").json()["team"] is None
    assert stranger.patch(f"{API}/jobs/{other['id']}", {"queue": "gpu"}, format="json").status_code == 200


def test_former_member_keeps_jobs_in_team_queue_but_cannot_edit_them(
    client: APIClient, owner: User, vision: Team, closed: str, bucket: None
) -> None:
    job = client.post(f"{API}/jobs", job_body(queue="gpu", script="true"), format="json").json()
    vision.memberships.all().delete()
    address = f"{API}/jobs/{job['id']}"
    assert client.post(f"{address}/execute").status_code == 201, "it still runs"
    assert client.patch(address, {"priority": 3}, format="json").status_code == 403
    assert client.patch(address, {"name": "renamed"}, format="json").status_code == 200, "the program is unchanged"
    same = {"name": "again", "queue": "gpu", "schedules": [{"cron": "0 3 * * *"}]}
    assert client.patch(address, same, format="json").status_code == 200, "nor can it move to another queue"
    assert client.patch(address, {"priority": 3, "queue": "default"}, format="json").status_code == 200
    assert client.post(f"{address}/pause").status_code == 200


def test_only_staff_assigns_queue_to_team_and_it_is_audited(
    client: APIClient, staff: APIClient, batch: dict[str, Any], vision: Team
) -> None:
    address = f"{API}/queues/{batch['id']}"
    assert client.patch(address, {"team": "vision"}, format="json").status_code == 403
    unknown = staff.patch(address, {"team": "nobody"}, format="json")
    assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (400, "team")
    assert staff.patch(address, {"team": "vision"}, format="json").json() == batch | {"team": "vision"}
    entry = AuditEntry.objects.filter(action="queue.edited").latest("id")
    assert (entry.before["team"], entry.after["team"]) == (None, "vision")


def test_team_with_queues_cannot_be_deleted(staff: APIClient, vision: Team, closed: str) -> None:
    refused = staff.delete(f"{API}/teams/{vision.id}")
    assert refused.status_code == 409
    assert "gpu" in refused.json()["detail"]
    assert vision.memberships.exists()
    staff.patch(closed, {"team": None}, format="json")
    assert staff.delete(f"{API}/teams/{vision.id}").status_code == 204
