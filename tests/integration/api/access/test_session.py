"""/login and /logout: browser sessions of all users, which also authenticate API requests."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from jobs.models import Job
from tests.integration.api.conftest import API
from tests.support.factories import make_job, make_user

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse"


def browser() -> Client:
    return Client(enforce_csrf_checks=True)


def token_of(page: Any) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.content.decode())
    assert found is not None
    return found[1]


def log_in(client: Client, username: str, password: str = PASSWORD, **fields: str) -> Any:
    body = {"csrfmiddlewaretoken": token_of(client.get("/login")), "username": username, "password": password}
    return client.post("/login", body | fields)


@pytest.fixture
def job() -> Job:
    return make_job(owner=make_user(password=PASSWORD))


def test_non_staff_logs_in_uses_api_and_logs_out(job: Job) -> None:
    client, address = browser(), f"{API}/jobs/{job.id}"
    assert client.get(address).status_code == 401

    assert log_in(client, job.owner.username)["Location"] == f"{API}/docs"
    assert client.get("/")["Location"] == f"{API}/docs", "not staff"
    assert client.get(address).json()["owner"] == job.owner.username
    assert client.put(f"{address}/cancel").status_code == 403, "a session needs a CSRF token for changes"
    crossing = {"X-CSRFToken": client.cookies["csrftoken"].value}
    assert client.put(f"{address}/cancel", headers=crossing).status_code == 200

    page = client.get("/login")
    assert f"You are logged in as {job.owner.username}." in page.content.decode()
    assert client.post("/logout", {"csrfmiddlewaretoken": token_of(page)})["Location"] == "/login"
    assert client.get(address).status_code == 401


def test_failed_logins_are_limited_and_answered_alike(job: Job) -> None:
    client = browser()
    refused = log_in(client, job.owner.username, "wrong")
    assert refused.status_code == 200
    assert "correct username and password" in refused.content.decode()
    for _ in range(9):
        log_in(client, job.owner.username, "wrong")
    assert "Too many" in log_in(client, job.owner.username).content.decode()
    assert client.get(f"{API}/jobs").status_code == 401


def test_login_redirects_only_to_own_host(job: Job) -> None:
    assert log_in(browser(), job.owner.username, next="/api/v1/jobs")["Location"] == "/api/v1/jobs"
    for elsewhere in ("https://evil.example/", "//evil.example", "/\\evil.example"):
        assert log_in(browser(), job.owner.username, next=elsewhere)["Location"] == f"{API}/docs"


def test_staff_is_redirected_to_admin() -> None:
    staff, client = make_user(password=PASSWORD, is_staff=True), browser()
    assert client.get("/")["Location"] == "/admin/"
    log_in(client, staff.username)
    assert client.get("/")["Location"] == "/admin/"
    assert ">Admin<" in client.get("/login").content.decode()
