"""Polling an execution is cheap, respects visibility, and stops for revoked tokens."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access import tokens
from jobs.db import wakeups
from jobs.execution import status_cache
from jobs.models import ApiToken
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_worker, run_on
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _patient_redis(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    patient = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(status_cache, "best_effort_redis", lambda: patient)


def test_polling_costs_one_query_per_second_and_respects_visibility(
    client: APIClient, owner: User, stranger: APIClient, staff: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "CACHE_TTL_SECONDS", 60.0)
    fence = run_on(make_worker(), make_execution(job=make_job(owner=owner)))
    address = f"{API}/executions/{fence.execution_id}"
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


def test_revoked_token_is_rejected_for_writes_at_once_and_soon_for_reads(client: APIClient, owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    address = f"{API}/executions/{execution.id}"
    assert client.get(address).status_code == 200
    ApiToken.objects.all().delete()
    assert client.put(f"{address}/cancel").status_code == 401
    wait_for(lambda: client.get(address).status_code == 401, "it reads no more", seconds=5)
    execution.refresh_from_db()
    assert execution.state == "ready"
