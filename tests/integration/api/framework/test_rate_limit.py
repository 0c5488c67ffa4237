"""Rate limits: headers in every response, and 429 only for the caller who exceeds them."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access import rate_limit
from jobs.access.tokens import generate_secret, store_token
from jobs.db import wakeups
from jobs.models import OwnerQuota, TokenScope
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_user

LIMIT = 3


@pytest.fixture(autouse=True)
def _few(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUNCTUAL_REQUESTS_PER_MINUTE = LIMIT
    patient = wakeups.BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=5)
    monkeypatch.setattr(rate_limit, "best_effort_redis", lambda: patient)


def test_rate_limit_counts_all_tokens_of_owner(client: APIClient, owner: User, stranger: APIClient) -> None:
    other_token = client_of(owner)
    answers = [reader.get(f"{API}/usage") for reader in (client, other_token, client)]
    assert [answer.status_code for answer in answers] == [200] * LIMIT
    assert [answer.headers["RateLimit-Remaining"] for answer in answers] == ["2", "1", "0"]
    assert {answer.headers["RateLimit-Limit"] for answer in answers} == {"3"}
    assert [int(answer.headers["RateLimit-Reset"]) for answer in answers] == [20, 40, 60]
    refused = other_token.post(f"{API}/jobs", {}, format="json")
    assert refused.status_code == 429
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    assert refused.headers["RateLimit-Remaining"] == "0"
    assert "3 requests a minute" in refused.json()["detail"]
    assert stranger.get(f"{API}/usage").status_code == 200


def test_rate_limit_is_configurable_per_owner(client: APIClient, owner: User) -> None:
    OwnerQuota.objects.create(owner=owner, requests_per_minute=LIMIT + 1)
    assert [client.get(f"{API}/usage").status_code for _ in range(LIMIT + 2)] == [200] * (LIMIT + 1) + [429]


def test_workers_are_not_counted(db: None) -> None:
    secret = generate_secret()
    store_token(owner=make_user(is_staff=True), name="worker", secret=secret, scope=TokenScope.WORKER)
    worker = APIClient(HTTP_AUTHORIZATION=f"Bearer {secret}")
    answers = [worker.get(f"{API}/workers/terms") for _ in range(LIMIT + 1)]
    assert [answer.status_code for answer in answers] == [200] * (LIMIT + 1)
    assert "RateLimit-Limit" not in answers[0].headers


def test_ipv6_network_counts_as_one_address(db: None) -> None:
    asked = [APIClient(REMOTE_ADDR=f"2001:db8::{n}").get(f"{API}/usage").status_code for n in range(LIMIT + 1)]
    assert asked == [401] * LIMIT + [429]


def test_anonymous_requests_are_counted_by_address(client: APIClient) -> None:
    here, elsewhere = APIClient(REMOTE_ADDR="192.0.2.1"), APIClient(REMOTE_ADDR="192.0.2.2")
    tokens = ["", "Bearer pun_wrong", "Bearer pun_wronger", "Bearer pun_wrongest"]
    asked = [here.get(f"{API}/usage", headers={"Authorization": token}).status_code for token in tokens]
    assert asked == [401] * LIMIT + [429]
    assert here.get(f"{API}/schema").status_code == 429
    assert elsewhere.get(f"{API}/usage").status_code == 401
    # Users are not limited by others behind the same address.
    assert client.get(f"{API}/usage", REMOTE_ADDR="192.0.2.1").status_code == 200


def test_rejection_has_rate_limit_headers(client: APIClient) -> None:
    refused = client.post(f"{API}/jobs", {"name": 1}, format="json")
    assert (refused.status_code, refused.headers["RateLimit-Remaining"]) == (400, "2")
