"""GET /executions/{id}/explain, and the explanation on the admin page."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.models import Queue
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_user, make_worker

pytestmark = pytest.mark.django_db


def test_every_gate_has_words_and_data(client: APIClient, owner: User) -> None:
    worker = make_worker(name="alpha", cpu=1.0)
    execution = make_execution(job=make_job(owner=owner, cpu=2.0))
    answer = client.get(f"{API}/executions/{execution.id}/explain")
    assert answer.status_code == 200
    explanation = answer.json()
    assert (explanation["execution_id"], explanation["status"]) == (str(execution.id), "ready")
    assert explanation["words"].startswith("It waits: no worker has enough free")
    (gate,) = (gate for gate in explanation["gates"] if gate["gate"] == "resource.cpu")
    assert gate == {
        "gate": "resource.cpu",
        "open": False,
        "value": 2.0,
        "limit": 1.0,
        "holders": [str(worker.worker_id)],
        "words": "alpha has 1 cpu free, and it needs 2.",
    }
    assert {"time", "job_pause", "queue_pause", "queue_limit", "job_limit", "capability"} <= {
        gate["gate"] for gate in explanation["gates"]
    }


def test_execution_of_others_is_not_explained(client: APIClient, stranger: APIClient, owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    assert stranger.get(f"{API}/executions/{execution.id}/explain").status_code == 404
    assert client.get(f"{API}/executions/{uuid4()}/explain").status_code == 404


def test_schema_describes_explain(client: APIClient) -> None:
    schema = client.get(f"{API}/schema", HTTP_ACCEPT="application/vnd.oai.openapi+json").content.decode()
    assert "executions_explain" in schema
    assert "GateOutput" in schema or "Gate" in schema


def test_admin_page_explains_waiting_execution(owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    Queue.objects.update(paused=True)
    browser = Client()
    browser.force_login(make_user(is_staff=True, is_superuser=True))
    page = browser.get(f"/admin/jobs/execution/{execution.id}/change/")
    assert "Its queue default is paused." in page.content.decode()
