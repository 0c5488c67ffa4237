"""Secrets that a token may grant to jobs; the author of a job's program can print them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from jobs.access.secrets import create_secret
from jobs.models import ApiToken, AuditEntry, Job
from tests.integration.api.access.test_tokens import bearer, create, make
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.factories import make_user

DB, TLS = {"name": "db", "env": "DB"}, {"name": "tls", "env": "TLS"}

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket", "both")]


@pytest.fixture
def both(owner: User) -> None:
    for name in ("db", "tls"):
        create_secret(owner=owner, name=name, value=f"value of {name}")


def of(client: APIClient, **body: Any) -> APIClient:
    return bearer(create(client, **body)["token"])


def submit(client: APIClient, *secrets: dict[str, str], **body: Any) -> Any:
    return client.post(f"{API}/jobs", job_body(secrets=list(secrets), **body), format="json")


def edit(client: APIClient, job: dict[str, Any], **body: Any) -> int:
    return int(client.patch(f"{API}/jobs/{job['id']}", body, format="json").status_code)


def test_submit_token_grants_only_listed_secrets(client: APIClient) -> None:
    none, some, every = (of(client, scope="submit", **more) for more in ({}, {"secrets": ["db"]}, {"secrets": ["*"]}))
    refused = submit(none, DB)
    problem = refused.json()
    assert (refused.status_code, problem["errors"][0]["field"]) == (403, "secrets.0.name")
    assert "--secret db" in problem["errors"][0]["message"], "what to ask for"
    assert not Job.objects.exists()
    assert submit(none).status_code == 201, "a job without secrets"
    assert [submit(some, DB).status_code, submit(some, DB, TLS).status_code] == [201, 403]
    assert submit(every, DB, TLS).status_code == 201
    bulk = {"jobs": [job_body(), job_body(secrets=[DB])]}
    answer = none.post(f"{API}/jobs/bulk", bulk, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (403, "jobs.1.secrets.0.name")


def test_passwords_sessions_and_larger_scopes_grant_all_secrets(client: APIClient, owner: User) -> None:
    for scope in ("operate", "admin"):
        assert submit(of(client, scope=scope), DB).status_code == 201
    browser = APIClient()
    browser.force_login(owner)
    assert submit(browser, DB).status_code == 201
    assert create(client, scope="operate")["secrets"] == ["*"]
    assert create(client, scope="submit")["secrets"] == []


def test_token_cannot_edit_job_with_secret_it_may_not_grant(client: APIClient, owner: User) -> None:
    job = submit(client, DB, schedules=[{"cron": "0 3 * * *"}]).json()
    narrow = of(client, scope="operate", secrets=["tls"])
    program: list[dict[str, Any]] = [{"script": "env"}, {"args": ["x"]}, {"env": {"A": "b"}}, {"stdin": "x"}]
    for change in [*program, {"secrets": [DB, TLS]}]:
        assert edit(narrow, job, **change) == 403, change
    elsewhere: list[dict[str, Any]] = [{"name": "other"}, {"schedules": []}]
    for change in elsewhere:
        assert edit(narrow, job, **change) == 200, "the program is unchanged"
    assert narrow.post(f"{API}/jobs/{job['id']}/execute", {}, format="json").status_code == 201
    assert edit(narrow, job, secrets=[]) == 200, "it may remove grants"
    assert edit(narrow, job, script="env") == 200
    assert edit(narrow, job, secrets=[DB]) == 403


def test_token_secret_names_refer_to_token_owner(client: APIClient) -> None:
    job = submit(client, DB, schedules=[{"cron": "0 3 * * *"}]).json()
    staff = client_of(make_user(is_staff=True))
    assert edit(of(staff, scope="operate", secrets=["db"]), job, script="env") == 403
    assert edit(of(staff, scope="operate"), job, script="env") == 200


def test_token_cannot_issue_token_with_more_secrets(client: APIClient) -> None:
    narrow = of(client, scope="admin", secrets=["db"])
    for more in ({"scope": "admin"}, {"scope": "submit", "secrets": ["tls"]}, {"scope": "submit", "secrets": ["*"]}):
        answer = make(narrow, **more)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (403, "secrets")
    assert create(narrow, scope="submit", secrets=["db"])["secrets"] == ["db"]
    assert AuditEntry.objects.latest("id").after["secrets"] == ["db"]


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "submit", "secrets": ["no good name"]},
        {"scope": "submit", "secrets": ["*", "db"]},
        {"scope": "submit", "secrets": ["db", "db"]},
        {"scope": "submit", "secrets": "db"},
        {"scope": "submit", "secrets": None},
        {"scope": "submit", "secrets": [f"s{number}" for number in range(101)]},
        {"scope": "read", "secrets": ["db"]},
    ],
)
def test_invalid_secret_list_names_field(client: APIClient, body: dict[str, Any]) -> None:
    answer = make(client, **body)
    assert (answer.status_code, answer.json()["errors"][0]["field"].partition(".")[0]) == (400, "secrets")


def test_admin_issues_submit_tokens_without_secrets(owner: User) -> None:
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))

    def add(scope: str, secrets: str) -> list[str] | None:
        body = {"owner": owner.pk, "name": f"{scope}-{secrets}", "scope": scope, "secrets": secrets}
        admin.post("/admin/jobs/apitoken/add/", body)
        token = ApiToken.objects.filter(name=body["name"]).first()
        return None if token is None else token.secrets

    assert [add("submit", ""), add("submit", "db,tls"), add("operate", ""), add("read", "db")] == [
        [], ["db", "tls"], ["*"], None,
    ]  # fmt: skip
