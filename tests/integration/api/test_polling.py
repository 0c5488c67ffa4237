"""Polling an execution costs next to nothing, shows nobody what is not theirs, and a revoked token changes nothing."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs import wakeups
from jobs.models import ApiToken
from jobs.services import status_cache, token_cache
from tests.factories import make_execution, make_job, make_worker, run_on
from tests.integration.api.conftest import API
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _patient_redis(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = wakeups.HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(status_cache, "hurried_redis", lambda: patient)


def test_polling_costs_a_query_a_second_and_shows_only_what_is_ones_own(
    client: APIClient, owner: User, stranger: APIClient, staff: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_cache, "SECONDS", 60.0)
    hold = run_on(make_worker(), make_execution(job=make_job(owner=owner)))
    address = f"{API}/executions/{hold.execution_id}"
    for reader in (client, stranger, staff):
        reader.get(f"{API}/usage")
    with CaptureQueriesContext(connection) as queries:
        answers = [client.get(address) for _ in range(20)]
    assert len(queries) <= 1 + 1, "a second may have passed"
    assert {answer.json()["status"] for answer in answers} == {"running"}
    assert answers[0].headers["ETag"] == answers[-1].headers["ETag"]
    assert client.get(address, HTTP_IF_NONE_MATCH=answers[0].headers["ETag"]).status_code == 304
    assert stranger.get(address).status_code == 404
    assert staff.get(address).json()["status"] == "running"
    assert client.put(f"{address}/cancel").json()["cancel_requested_at"]
    assert client.get(address).json()["cancel_requested_at"]


def test_a_revoked_token_changes_nothing_and_soon_reads_nothing(client: APIClient, owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    address = f"{API}/executions/{execution.id}"
    assert client.get(address).status_code == 200
    ApiToken.objects.all().delete()
    assert client.put(f"{address}/cancel").status_code == 401
    wait_for(lambda: client.get(address).status_code == 401, "it reads no more", seconds=5)
    execution.refresh_from_db()
    assert execution.state == "ready"
