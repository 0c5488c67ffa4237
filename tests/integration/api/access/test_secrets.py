"""/secrets: create, rotate and delete; values are never returned."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access.secrets import load_keyring
from jobs.domain import limits
from jobs.models import Secret
from tests.integration.api.conftest import API
from tests.support.factories import make_user
from tests.support.rest_workers import worker_client

pytestmark = pytest.mark.django_db
Submit = Callable[..., dict[str, Any]]
VALUE = "correct horse battery staple"


def create(client: APIClient, name: str = "db-password", value: str = VALUE) -> dict[str, Any]:
    response = client.post(f"{API}/secrets", {"name": name, "value": value}, format="json")
    assert response.status_code == 201, response.content
    data: dict[str, Any] = response.json()
    assert client.get(response["Location"]).json() == data
    return data


def rotate(client: APIClient, secret: dict[str, Any], value: str) -> Any:
    return client.put(f"{API}/secrets/{secret['id']}", {"value": value}, format="json")


@pytest.mark.parametrize(
    ("path", "body"), [("secrets", {"value": VALUE}), ("calendars", {}), ("webhooks", {"url": "https://example.com/"})]
)
def test_number_of_uncounted_objects_per_owner_is_bounded(
    client: APIClient, stranger: APIClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr(limits, f"MAX_{path.upper()}_PER_OWNER", 2)
    responses = [
        client.post(f"{API}/{path}", {**body, "name": name}, format="json") for name in ("one", "two", "three")
    ]
    assert [answer.status_code for answer in responses] == [201, 201, 409]
    assert f"You have 2 {path}" in responses[2].json()["detail"]
    assert stranger.post(f"{API}/{path}", {**body, "name": "one"}, format="json").status_code == 201


def opened(name: str = "db-password") -> str:
    secret, ring = Secret.objects.get(name=name), load_keyring()
    assert ring is not None
    return ring.open(bytes(secret.sealed), owner_id=secret.owner_id, name=name)


def test_secret_is_created_listed_rotated_and_deleted(client: APIClient, owner: User) -> None:
    secret = create(client)
    assert set(secret) == {"id", "name", "owner", "version", "created_at", "updated_at"}
    assert (secret["name"], secret["owner"], secret["version"]) == ("db-password", owner.get_username(), 1)
    assert opened() == VALUE
    assert VALUE.encode() not in bytes(Secret.objects.get().sealed)
    assert client.get(f"{API}/secrets").json() == {"results": [secret], "next": None}
    new = rotate(client, secret, "  another one\n").json()
    assert (new["version"], new["created_at"]) == (2, secret["created_at"])
    assert new["updated_at"] > secret["updated_at"]
    assert opened() == "  another one\n", "shown as submitted"
    response = client.delete(f"{API}/secrets/{secret['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert client.get(f"{API}/secrets/{secret['id']}").status_code == 404


def test_list_is_paginated(client: APIClient) -> None:
    names = [create(client, f"s{n}")["name"] for n in range(3)]
    first = client.get(f"{API}/secrets?limit=2").json()
    rest = client.get(first["next"]).json()
    assert [each["name"] for each in first["results"] + rest["results"]] == names[::-1]
    assert rest["next"] is None
    assert [each["name"] for each in client.get(f"{API}/secrets?name=s1").json()["results"]] == ["s1"]


@pytest.mark.parametrize(
    "value", ["1234", "é" * 2, "x" * limits.MAX_SECRET_BYTES, "🔑" * (limits.MAX_SECRET_BYTES // 4)]
)
def test_values_of_all_allowed_sizes_are_stored(client: APIClient, value: str) -> None:
    create(client, value=value)
    assert opened() == value


BAD_NAMES = ["", " ", "-a", ".a", "_a", "a b", "a/b", "a\n", "é", "x" * 64, None, 5]
BAD_VALUES = ["", "hun", "hunter2\x00", "hunter2" * 10_000, "hunter2\ud800", None, 5, ["hunter2"], {"hunter2": 1}]
BAD: list[tuple[str, dict[str, Any]]] = [
    *(("name", {"name": name, "value": "hunter2"}) for name in BAD_NAMES),
    *(("value", {"name": "x", "value": value}) for value in BAD_VALUES),
    ("value", {"name": "x"}),
    ("name", {"value": "hunter2"}),
    ("sealed", {"name": "x", "value": "hunter2", "sealed": "hunter2"}),
]


def test_invalid_input_names_field_without_quoting_value(client: APIClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    kept = create(client)

    def send(call: Any, path: str, body: Any) -> Any:
        # Encoded here, because the test client's encoder rejects lone surrogates.
        return call(f"{API}/{path}", json.dumps(body), content_type="application/json")

    for field, body in BAD:
        response = send(client.post, "secrets", body)
        assert response.status_code == 400, (body, response.content)
        assert response.json()["errors"][0]["field"] == field, (body, response.json())
        assert b"hunter2" not in response.content
    for value in BAD_VALUES:
        response = send(client.put, f"secrets/{kept['id']}", {"value": value})
        assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "value")
        assert b"hunter2" not in response.content
    for text in ('"hunter2', '"hunter2"', '["hunter2"]', '{"value": "hunter2"'):
        response = client.post(f"{API}/secrets", text, content_type="application/json")
        assert response.status_code == 400
        assert b"hunter2" not in response.content
    assert Secret.objects.get().version == 1
    assert opened() == VALUE
    assert "hunter2" not in caplog.text
    assert VALUE not in caplog.text


def test_internal_error_does_not_leak_value(
    client: APIClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(Secret.objects, "create", fail)
    response = client.post(f"{API}/secrets", {"name": "x", "value": VALUE}, format="json")
    assert response.status_code == 500
    assert VALUE.encode() not in response.content
    assert "nobody thought of this" in caplog.text
    assert VALUE not in caplog.text


def test_names_are_unique_per_owner(client: APIClient, stranger: APIClient) -> None:
    create(client)
    response = client.post(f"{API}/secrets", {"name": "db-password", "value": "hunter2"}, format="json")
    assert response.status_code == 409
    assert "db-password" in response.json()["detail"]
    assert b"hunter2" not in response.content
    create(client, "DB-password")
    create(stranger)


def test_secrets_of_others_are_not_found(client: APIClient, stranger: APIClient, staff: APIClient) -> None:
    foreign = create(stranger)
    for response in (
        client.get(f"{API}/secrets/{foreign['id']}"),
        rotate(client, foreign, "hunter2"),
        client.delete(f"{API}/secrets/{foreign['id']}"),
        client.get(f"{API}/secrets/{uuid4()}"),
    ):
        assert response.status_code == 404
    assert client.get(f"{API}/secrets").json()["results"] == []
    assert opened() == VALUE
    assert [each["id"] for each in staff.get(f"{API}/secrets").json()["results"]] == [foreign["id"]]


def test_worker_and_anonymous_cannot_read_secrets(client: APIClient, owner: User) -> None:
    secret = create(client)
    User.objects.filter(pk=owner.pk).update(is_staff=True)
    for someone, status in ((worker_client(owner)[0], 403), (APIClient(), 401)):
        assert someone.get(f"{API}/secrets").status_code == status
        assert someone.get(f"{API}/secrets/{secret['id']}").status_code == status
        assert someone.post(f"{API}/secrets", {"name": "x", "value": VALUE}, format="json").status_code == status
        assert rotate(someone, secret, "hunter2").status_code == status
        assert someone.delete(f"{API}/secrets/{secret['id']}").status_code == status
    assert opened() == VALUE


def test_without_encryption_keys_only_secrets_fail(client: APIClient, settings: Settings) -> None:
    secret = create(client)
    settings.PUNCTUAL_SECRETS_KEYS = ""
    for response in (
        client.post(f"{API}/secrets", {"name": "x", "value": "hunter2"}, format="json"),
        rotate(client, secret, "hunter2"),
    ):
        assert response.status_code == 409
        assert "set PUNCTUAL_SECRETS_KEYS" in response.json()["detail"]
    assert client.get(f"{API}/secrets").json()["results"] == [secret]
    assert client.delete(f"{API}/secrets/{secret['id']}").status_code == 204


def test_secret_in_use_cannot_be_deleted(client: APIClient, stranger: APIClient, submit: Submit) -> None:
    secret = create(client)
    create(stranger)
    submit(name="unused")
    grants = [{"name": "db-password", "env": "A"}, {"name": "db-password", "file": "a"}]
    jobs = [submit(name=f"user-{n}", secrets=grants) for n in range(7)]

    def refusal() -> str:
        response = client.delete(f"{API}/secrets/{secret['id']}")
        assert response.status_code == 409
        detail: str = response.json()["detail"]
        return detail

    assert "used by user-0, user-1, user-2, user-3, user-4 and others;" in refusal()
    client.patch(f"{API}/jobs/{jobs[0]['id']}", {"secrets": []}, format="json")
    client.put(f"{API}/jobs/{jobs[1]['id']}/cancel")
    client.post(f"{API}/jobs/{jobs[2]['id']}/pause", {}, format="json")
    for job in jobs[3:6]:
        client.delete(f"{API}/jobs/{job['id']}")
    assert "used by user-2, user-6;" in refusal()
    for job in (jobs[2], jobs[6]):
        client.delete(f"{API}/jobs/{job['id']}")
    assert client.delete(f"{API}/secrets/{secret['id']}").status_code == 204
    assert Secret.objects.count() == 1, "the stranger's object is unchanged"


def test_admin_lists_names_and_deletes_unused_secrets(client: APIClient, submit: Submit) -> None:
    used, unused = create(client, "used"), create(client, "unused", "another one")
    submit(name="its-user", secrets=[{"name": "used", "env": "A"}])
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    address = f"/admin/jobs/secret/{used['id']}/change/"
    pages = [admin.get("/admin/jobs/secret/"), admin.get(address)]
    for page in pages:
        assert page.status_code == 200
        assert b"used" in page.content
        for secret in Secret.objects.all():
            assert bytes(secret.sealed).hex().encode() not in page.content
            assert b"sealed" not in page.content
        assert VALUE.encode() not in page.content
    assert admin.post(address, {"name": "x"}).status_code == 403
    assert admin.get("/admin/jobs/secret/add/").status_code == 403
    chosen = {"action": "delete_unused", "_selected_action": [used["id"], unused["id"]]}
    done = admin.post("/admin/jobs/secret/", chosen, follow=True).content.decode()
    assert "Deleted 1 secret." in done
    assert "The secret used is used by its-user;" in done
    assert Secret.objects.get().name == "used"
    admin.force_login(make_user())
    assert admin.post("/admin/jobs/secret/", chosen)["Location"].startswith("/admin/login/")
