"""Two owners and a member of staff, each with a client that sends their API token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.models import Execution, Job, TokenScope
from jobs.services.tokens import new_secret, note_use, store_token
from tests.factories import make_user

API = "/api/v1"


@pytest.fixture(autouse=True)
def _static_files(settings: Settings, tmp_path: Path) -> None:
    """The web server's static files are collected when a stack starts, and there is none here."""
    settings.STATIC_ROOT = tmp_path


def client_of(user: User, scope: TokenScope = TokenScope.ADMIN) -> APIClient:
    secret = new_secret()
    # As if used before: the first use writes, and tests count statements.
    note_use(store_token(owner=user, name="test", secret=secret, scope=scope).id)
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
    """Submits a job that is expected to be taken, and returns its representation."""

    def submit(**body: Any) -> dict[str, Any]:
        response = client.post(f"{API}/jobs", job_body(**body), format="json")
        assert response.status_code == 201, response.content
        shown: dict[str, Any] = response.json()
        return shown

    return submit


def job_body(**changes: Any) -> dict[str, Any]:
    """A valid body; a change to None leaves the field out."""
    body = {"name": "job", "runtime": "bash", "script": "echo hello"} | changes
    return {name: value for name, value in body.items() if value is not None}


def execution_of(job_id: str) -> Execution:
    return Execution.objects.get(job_id=job_id)


def job_of(shown: dict[str, Any]) -> Job:
    return Job.objects.get(id=shown["id"])
