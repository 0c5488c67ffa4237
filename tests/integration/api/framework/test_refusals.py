"""A worker that refuses work shows the reason in the API and the admin."""

from __future__ import annotations

import pytest
from django.test import Client
from rest_framework.test import APIClient

from jobs.domain.worker_protocol import MAX_REFUSAL_LENGTH
from jobs.models import Worker
from tests.integration.api.conftest import API
from tests.support.factories import make_user, make_worker
from tests.support.rest_workers import offer, worker_client

WHY = "The sandbox of this host does not hold: network (it reached <the> worker)."


def test_api_shows_refusal(client: APIClient) -> None:
    weak, sound = make_worker(refusal=WHY), make_worker()
    listed = {row["id"]: row["refusal"] for row in client.get(f"{API}/workers").json()["results"]}
    assert listed == {str(weak.worker_id): WHY, str(sound.worker_id): ""}
    assert client.get(f"{API}/workers/{weak.worker_id}").json()["refusal"] == WHY


def test_rest_worker_registers_with_refusal(db: None) -> None:
    worker, _ = worker_client()
    body = offer(refusal=WHY)
    assert worker.post(f"{API}/workers/register", body, format="json").status_code == 201
    assert Worker.objects.get().refusal == WHY
    assert worker.post(f"{API}/workers/register", body | {"refusal": ""}, format="json").status_code == 201
    assert Worker.objects.get().refusal == ""


@pytest.mark.parametrize("wrong", ["x" * (MAX_REFUSAL_LENGTH + 1), 1, None, ["no"], "nul\0"])
def test_refusal_length_is_bounded(db: None, wrong: object) -> None:
    worker, _ = worker_client()
    response = worker.post(f"{API}/workers/register", offer(refusal=wrong), format="json")
    assert response.status_code == 400
    assert "refusal" in str(response.json())
    assert not Worker.objects.exists()


def test_admin_shows_refusal(db: None) -> None:
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    worker = make_worker(refusal=WHY + " Mend it." * 100)
    listed = admin.get("/admin/jobs/worker/").content.decode()
    assert "network (it reached &lt;the&gt; worker)" in listed
    assert listed.count("Mend it.") < 100
    page = admin.get(f"/admin/jobs/worker/{worker.worker_id}/change/").content.decode()
    assert page.count("Mend it.") == 100
