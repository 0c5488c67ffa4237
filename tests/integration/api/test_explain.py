"""GET /executions/{id}/explain, and the page of an execution in the admin."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.models import Queue
from tests.factories import make_execution, make_job, make_user, make_worker
from tests.integration.api.conftest import API

pytestmark = pytest.mark.django_db


def test_every_gate_comes_in_words_and_as_data(client: APIClient, owner: User) -> None:
    worker = make_worker(name="alpha", cpu=1.0)
    execution = make_execution(job=make_job(owner=owner, cpu=2.0))
    answer = client.get(f"{API}/executions/{execution.id}/explain")
    assert answer.status_code == 200
    told = answer.json()
    assert (told["execution_id"], told["status"]) == (str(execution.id), "ready")
    assert told["words"].startswith("It waits: no worker has enough free")
    (gate,) = (gate for gate in told["gates"] if gate["gate"] == "resource.cpu")
    assert gate == {
        "gate": "resource.cpu",
        "open": False,
        "value": 2.0,
        "limit": 1.0,
        "holders": [str(worker.worker_id)],
        "words": "alpha has 1 cpu free, and it needs 2.",
    }
    assert {"time", "job_pause", "queue_pause", "queue_limit", "job_limit", "capability"} <= {
        gate["gate"] for gate in told["gates"]
    }


def test_a_stranger_and_an_unknown_id_find_nothing(client: APIClient, stranger: APIClient, owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    assert stranger.get(f"{API}/executions/{execution.id}/explain").status_code == 404
    assert client.get(f"{API}/executions/{uuid4()}/explain").status_code == 404


def test_it_is_described(client: APIClient) -> None:
    schema = client.get(f"{API}/schema", HTTP_ACCEPT="application/vnd.oai.openapi+json").content.decode()
    assert "executions_explain" in schema
    assert "GateOutput" in schema or "Gate" in schema


def test_the_admin_says_it_on_the_page_of_an_execution(owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    Queue.objects.update(paused=True)
    browser = Client()
    browser.force_login(make_user(is_staff=True, is_superuser=True))
    page = browser.get(f"/admin/jobs/execution/{execution.id}/change/")
    assert "Its queue default is paused." in page.content.decode()
