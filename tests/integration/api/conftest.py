"""Fixtures: two owners and a staff user, each with a client that sends their API token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access.tokens import generate_secret, record_use, store_token
from jobs.models import Execution, Job, TokenScope
from tests.support.factories import make_user

API = "/api/v1"


@pytest.fixture(autouse=True)
def _static_files(settings: Settings, tmp_path: Path) -> None:
    """Static files are collected at the start of a stack, and these tests have none."""
    settings.STATIC_ROOT = tmp_path


def client_of(user: User, scope: TokenScope = TokenScope.ADMIN) -> APIClient:
    secret = generate_secret()
    # Marked as used: the first use writes a row, and tests count queries.
    record_use(store_token(owner=user, name="test", secret=secret, scope=scope).id)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


@pytest.fixture
def owner(db: None) -> User:
    return make_user()


@pytest.fixture
def client(owner: User) -> APIClient:
    return client_of(owner)


@pytest.fixture
def stranger(db: None) -> APIClient:
    return client_of(make_user())


@pytest.fixture
def staff(db: None) -> APIClient:
    return client_of(make_user(is_staff=True))


@pytest.fixture
def submit(client: APIClient, bucket: None) -> Callable[..., dict[str, Any]]:
    """Submit a valid job and return its representation."""

    def submit(**body: Any) -> dict[str, Any]:
        response = client.post(f"{API}/jobs", job_body(**body), format="json")
        assert response.status_code == 201, response.content
        representation: dict[str, Any] = response.json()
        return representation

    return submit


def job_body(**changes: Any) -> dict[str, Any]:
    """Return a valid body; a change to None removes the field."""
    body = {"name": "job", "runtime": "bash", "script": "echo hello"} | changes
    return {name: value for name, value in body.items() if value is not None}


def execution_of(job_id: str) -> Execution:
    return Execution.objects.get(job_id=job_id)


def job_of(representation: dict[str, Any]) -> Job:
    return Job.objects.get(id=representation["id"])
