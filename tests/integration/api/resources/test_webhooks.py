"""/webhooks: create, edit, test and delete; validation and visibility."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.domain import limits
from jobs.domain.states import State
from jobs.execution import transitions
from jobs.models import Webhook, WebhookDelivery
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_user

pytestmark = pytest.mark.django_db
URL = "https://example.com/hook"
Body = dict[str, Any]


def create(client: APIClient, **fields: Any) -> Body:
    response = client.post(f"{API}/webhooks", {"name": "ops", "url": URL} | fields, format="json")
    assert response.status_code == 201, response.content
    issued: Body = response.json()
    data = client.get(response["Location"]).json()
    assert issued == data | {"secret": issued["secret"]}
    return issued


def test_webhook_is_created_listed_edited_and_deleted(client: APIClient, owner: User) -> None:
    issued = create(client)
    assert issued["secret"].startswith("whsec_")
    assert (issued["owner"], issued["url"], issued["job"], issued["enabled"]) == (owner.get_username(), URL, None, True)
    assert issued["events"] == ["cancelled", "failed", "succeeded", "timed_out"]
    listed = client.get(f"{API}/webhooks?name=ops").json()["results"]
    assert [each["id"] for each in listed] == [issued["id"]]
    assert "secret" not in listed[0]
    assert client.get(f"{API}/webhooks?name=other").json()["results"] == []
    job = make_job(owner=owner)
    changes = {"url": "https://example.org:8443/", "events": ["missed"], "job": str(job.id), "name": "other"}
    changed = client.patch(f"{API}/webhooks/{issued['id']}", changes | {"enabled": False}, format="json").json()
    assert {name: changed[name] for name in changes} == changes
    assert changed["enabled"] is False
    stored = Webhook.objects.get()
    assert stored.host == "example.org"
    assert issued["secret"].encode() not in bytes(stored.sealed)
    back = client.patch(f"{API}/webhooks/{issued['id']}", {"job": None, "enabled": True}, format="json").json()
    assert (back["job"], back["enabled"], back["events"]) == (None, True, ["missed"])
    transitions.cancel([make_execution(job=job).id], by="me")
    make_execution(job=job, state=State.MISSED)
    assert len(client.get(f"{API}/webhooks/{issued['id']}/deliveries").json()["results"]) == 1
    response = client.delete(f"{API}/webhooks/{issued['id']}")
    assert (response.status_code, response.content) == (204, b"")
    assert not WebhookDelivery.objects.exists()
    assert client.get(f"{API}/webhooks/{issued['id']}").status_code == 404


def test_rotated_secret_is_shown_once(client: APIClient) -> None:
    issued = create(client)
    rotated = client.post(f"{API}/webhooks/{issued['id']}/rotate").json()
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != issued["secret"]
    assert "secret" not in client.get(f"{API}/webhooks/{issued['id']}").json()


def test_second_rotation_needs_force(client: APIClient) -> None:
    rotate = f"{API}/webhooks/{create(client)['id']}/rotate"
    assert client.post(rotate).status_code == 200
    before = Webhook.objects.get()
    refused = client.post(rotate, {"force": False}, format="json")
    assert (refused.status_code, "or force it" in refused.json()["detail"]) == (409, True)
    assert client.post(rotate, {"force": "perhaps"}, format="json").json()["errors"][0]["field"] == "force"
    after = Webhook.objects.get()
    assert (bytes(after.sealed), after.previous_until) == (bytes(before.sealed), before.previous_until)
    assert client.post(rotate, {"force": True}, format="json").status_code == 200
    assert bytes(Webhook.objects.get().previous_sealed or b"") == bytes(before.sealed)
    Webhook.objects.update(previous_until=before.created_at)
    assert client.post(rotate).status_code == 200


BAD_URLS: list[object] = [
    "", "http://example.com/", "https://user:pass@example.com/", "https://127.0.0.1/", "https://2130706433/",
    "https://0x7f.1/", "https://0177.0.0.1/", "https://[::1]/", "https://[::ffff:10.0.0.1]/",
    "https://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "https://example.com/\r\nX: y",
    "https://example.com/\x00", "https://ex\ud800.com/", "ftp://example.com/", "https://x/" + "y" * 3000,
    "https://" + "a." * 125 + "exam/", 5, None, [],
]  # fmt: skip
BAD_NAMES: list[object] = ["", "  ", "a\nb", "a\x00b", "x" * 101, 5, None, ["a"]]
BAD_EVENTS: list[object] = [[], "failed", ["ran"], [5], None, {"failed": 1}, ["failed"] * 1000]
WRONG: list[tuple[str, object]] = [
    *(("url", url) for url in BAD_URLS),
    *(("name", name) for name in BAD_NAMES),
    *(("events", events) for events in BAD_EVENTS),
    *(("job", job) for job in ("nightly", 5, str(uuid4()))),
    ("secret", "whsec_x"),
    ("enabled", True),
]


def test_invalid_webhook_names_field_and_stores_nothing(client: APIClient) -> None:
    kept = create(client, name="kept")
    for field, value in WRONG:
        body = json.dumps({"name": "ops", "url": URL} | {field: value})
        response = client.post(f"{API}/webhooks", body, content_type="application/json")
        assert response.status_code == 400, (field, value, response.content)
        assert response.json()["errors"][0]["field"].split(".")[0] == field, (value, response.json())
    for field, value in WRONG[:-1]:
        body = json.dumps({field: value})
        response = client.patch(f"{API}/webhooks/{kept['id']}", body, content_type="application/json")
        assert response.status_code == 400, (field, value, response.content)
    assert client.patch(f"{API}/webhooks/{kept['id']}", {"enabled": "maybe"}, format="json").status_code == 400
    del kept["secret"]
    assert client.get(f"{API}/webhooks").json()["results"] == [kept]


def test_webhook_names_are_unique_and_number_is_limited(client: APIClient, stranger: APIClient) -> None:
    first = create(client, name="0")
    for number in range(1, limits.MAX_WEBHOOKS_PER_OWNER):
        create(client, name=str(number))
    response = client.post(f"{API}/webhooks", {"name": "more", "url": URL}, format="json")
    assert (response.status_code, "delete one first" in response.json()["detail"]) == (409, True)
    assert client.patch(f"{API}/webhooks/{first['id']}", {"name": "1"}, format="json").status_code == 409
    client.delete(f"{API}/webhooks/{first['id']}")
    assert client.post(f"{API}/webhooks", {"name": "1", "url": URL}, format="json").status_code == 409
    create(client, name="0")
    create(stranger, name="0")


def test_webhook_accepts_only_own_jobs(client: APIClient, stranger: APIClient, staff: APIClient, owner: User) -> None:
    job = make_job(owner=owner)
    body = {"name": "spy", "url": URL, "job": str(job.id)}
    for other in (stranger, staff):
        response = other.post(f"{API}/webhooks", body, format="json")
        assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "job")
    own = create(client)
    assert staff.patch(f"{API}/webhooks/{own['id']}", {"job": str(job.id)}, format="json").status_code == 200
    foreign = make_job()
    assert staff.patch(f"{API}/webhooks/{own['id']}", {"job": str(foreign.id)}, format="json").status_code == 400


def test_without_encryption_keys_no_webhook_is_created(client: APIClient, settings: Settings) -> None:
    settings.PUNCTUAL_SECRETS_KEYS = ""
    response = client.post(f"{API}/webhooks", {"name": "ops", "url": URL}, format="json")
    assert (response.status_code, "PUNCTUAL_SECRETS_KEYS" in response.json()["detail"]) == (409, True)


def test_ping_and_delivery_can_be_redelivered(client: APIClient, stranger: APIClient) -> None:
    issued = create(client)
    response = client.post(f"{API}/webhooks/{issued['id']}/ping")
    assert response.status_code == 202
    ping = response.json()
    assert (ping["event"], ping["execution"], ping["state"], ping["tries_left"]) == ("ping", None, "pending", 1)
    assert ping["next_try_at"] is not None
    deliveries = f"{API}/webhooks/{issued['id']}/deliveries"
    assert client.get(deliveries).json() == {"results": [ping], "next": None}
    WebhookDelivery.objects.update(state="failed", ended_at=Webhook.objects.get().created_at)
    assert client.get(f"{deliveries}?state=pending").json()["results"] == []
    assert client.get(f"{deliveries}?state=failed").json()["results"][0]["next_try_at"] is None
    assert client.get(f"{deliveries}?state=lost").status_code == 400
    again = client.post(f"{deliveries}/{ping['id']}/redeliver")
    assert (again.status_code, again.json()["state"], again.json()["id"]) == (202, "pending", ping["id"])
    other = create(client, name="another")
    for wrong in (uuid4(), other["id"]):
        assert client.post(f"{API}/webhooks/{wrong}/deliveries/{ping['id']}/redeliver").status_code == 404
    assert client.post(f"{deliveries}/{uuid4()}/redeliver").status_code == 404
    client.patch(f"{API}/webhooks/{issued['id']}", {"enabled": False}, format="json")
    for refused in (
        client.post(f"{deliveries}/{ping['id']}/redeliver"),
        client.post(f"{API}/webhooks/{issued['id']}/ping"),
    ):
        assert (refused.status_code, "enable it first" in refused.json()["detail"]) == (409, True)


def test_pending_pings_are_limited(client: APIClient) -> None:
    issued = create(client)
    last = [
        client.post(f"{API}/webhooks/{issued['id']}/ping").json()["id"]
        for _ in range(limits.MAX_STORED_WEBHOOK_PINGS + 3)
    ]
    kept = client.get(f"{API}/webhooks/{issued['id']}/deliveries").json()["results"]
    assert [each["id"] for each in kept] == last[: -limits.MAX_STORED_WEBHOOK_PINGS - 1 : -1]


def test_deliveries_are_paginated_newest_first(client: APIClient, owner: User) -> None:
    """Their ids are generated by the database and sort by time."""
    issued = create(client)
    job = make_job(owner=owner)
    for _ in range(5):
        transitions.cancel([make_execution(job=job).id], by="me")
    client.post(f"{API}/webhooks/{issued['id']}/ping")
    first = client.get(f"{API}/webhooks/{issued['id']}/deliveries?limit=4").json()
    rest = client.get(first["next"]).json()
    created = [each["created_at"] for each in first["results"] + rest["results"]]
    assert len(created) == 6
    assert created == sorted(created, reverse=True)
    assert rest["next"] is None


def test_admin_hides_secrets_escapes_responses_and_runs_actions(client: APIClient) -> None:
    issued = create(client, name="<b>ops")
    client.post(f"{API}/webhooks/{issued['id']}/ping")
    WebhookDelivery.objects.update(
        state="failed", ended_at=Webhook.objects.get().created_at, response="<script>alert(1)</script>"
    )
    delivery = WebhookDelivery.objects.get()
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    for path in (
        "webhook/",
        f"webhook/{issued['id']}/change/",
        "webhookdelivery/",
        f"webhookdelivery/{delivery.id}/change/",
    ):
        page = admin.get(f"/admin/jobs/{path}")
        assert page.status_code == 200
        text = page.content.decode()
        assert "&lt;b&gt;ops" in text
        assert "<b>ops" not in text
        assert "<script>alert" not in text
        assert issued["secret"] not in text
        assert bytes(Webhook.objects.get().sealed).hex() not in text
    admin.post("/admin/jobs/webhookdelivery/", {"action": "redeliver", "_selected_action": [str(delivery.id)]})
    assert WebhookDelivery.objects.get().state == "pending"
    admin.post("/admin/jobs/webhook/", {"action": "disable", "_selected_action": [issued["id"]]})
    assert not Webhook.objects.get().enabled
    refused = admin.post(
        "/admin/jobs/webhookdelivery/", {"action": "redeliver", "_selected_action": [str(delivery.id)]}, follow=True
    )
    assert "enable it first" in refused.content.decode()
    admin.post("/admin/jobs/webhook/", {"action": "enable", "_selected_action": [issued["id"]]})
    assert Webhook.objects.get().enabled
    assert admin.get("/admin/jobs/webhook/add/").status_code == 403
