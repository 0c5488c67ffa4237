"""What is wrong is refused with the field's name and a sentence, and nothing of it is stored: no row, no object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from rest_framework.test import APIClient

from jobs import storage
from tests.integration.api.conftest import API, job_body

HUGE = 10**400
NOBODY = "00000000-0000-7000-8000-000000000000"


def scheduled(**schedule: object) -> dict[str, Any]:
    return job_body(schedules=[schedule])


def needing(**requirements: object) -> dict[str, Any]:
    return job_body(requirements=requirements)


JOBS = {
    "unknown field": (job_body(colour="red"), "colour"),
    "unknown field within": (scheduled(cron="@daily", colour="red"), "schedules.0.colour"),
    "number for text": (job_body(name=7), "name"),
    "text for a number": (job_body(priority="5"), "priority"),
    "truth for a number": (job_body(priority=True), "priority"),
    "list for an object": (job_body(requirements=[]), "requirements"),
    "object for a list": (job_body(schedules={}), "schedules"),
    "null": (job_body() | {"name": None}, "name"),
    "missing": (job_body(name=None), "name"),
    "empty name": (job_body(name=""), "name"),
    "endless name": (job_body(name="x" * 100_000), "name"),
    "NUL in a name": (job_body(name="a\0b"), "name"),
    "surrogate in a name": (job_body(name="a\ud800b"), "name"),
    "NUL in an argument": (job_body(args=["a\0b"]), "args"),
    "surrogate in an argument": (job_body(args=["\udfff"]), "args"),
    "surrogate in a script": (job_body(script="echo \ud800"), "script"),
    "NUL in the environment": (job_body(env={"A": "\0"}), "env"),
    "bad variable": (job_body(env={"A=B": "1"}), "env"),
    "bad runtime": (job_body(runtime="cobol"), "runtime"),
    "bad cron": (scheduled(cron="61 * * * *"), "schedules.0.cron"),
    "NUL in cron": (scheduled(cron="* * * * *\0"), "schedules.0.cron"),
    "bad zone": (scheduled(cron="@daily", timezone="Mars/Olympus"), "schedules.0.timezone"),
    "zone with a path": (scheduled(cron="@daily", timezone="../../etc/passwd"), "schedules.0.timezone"),
    "no offset": (scheduled(at="2031-01-01T00:00:00"), "schedules.0.at"),
    "two kinds": (scheduled(cron="@daily", every_seconds=5), "schedules.0.every_seconds"),
    "negative interval": (scheduled(every_seconds=-5), "schedules.0.every_seconds"),
    "ends before it starts": (
        scheduled(cron="@daily", starts_at="2031-01-02T00:00:00Z", ends_at="2031-01-01T00:00:00Z"),
        "schedules.0.ends_at",
    ),
    "no such job before it": (job_body(dependencies=[{"job": NOBODY}]), "dependencies.0.job"),
    "bad id": (job_body(dependencies=[{"job": "7"}]), "dependencies.0.job"),
    "negative cpu": (needing(cpu=-1), "requirements.cpu"),
    "huge cpu": (needing(cpu=HUGE), "requirements.cpu"),
    "negative memory": (needing(memory_mb=-1), "requirements.memory_mb"),
    "huge memory": (needing(memory_mb=HUGE), "requirements.memory_mb"),
    "negative resource": (needing(resources={"gpu": -1}), "requirements.resources.gpu"),
    "bad queue": (job_body(queue="no such\u202equeue"), "queue"),
    "no such artifact": (job_body(script=None, artifact=NOBODY), "artifact"),
}
OTHERS = {
    "bulk: one of two": ("jobs/bulk", {"jobs": [job_body(), job_body(priority=10)]}, "jobs.1.priority"),
    "bulk: no list": ("jobs/bulk", {"jobs": "all"}, "jobs"),
    "calendar: no name": ("calendars", {"dates": []}, "name"),
    "calendar: bad date": ("calendars", {"name": "c", "dates": ["2030-02-30"]}, "dates.0"),
    "calendar: NUL": ("calendars", {"name": "\0"}, "name"),
    "secret: surrogate": ("secrets", {"name": "s", "value": "abcd\ud800"}, "value"),
    "secret: bad name": ("secrets", {"name": "a b", "value": "abcd"}, "name"),
    "token: no such scope": ("tokens", {"name": "t", "scope": "god"}, "scope"),
    "token: NUL": ("tokens", {"name": "\0", "scope": "read"}, "name"),
    "webhook: not the internet": ("webhooks", {"name": "w", "url": "https://127.0.0.1/"}, "url"),
    "webhook: no address": ("webhooks", {"name": "w", "url": "javascript:alert(1)"}, "url"),
    "webhook: event": ("webhooks", {"name": "w", "url": "https://a.example/", "events": ["born"]}, "events"),
}
RAW = {
    "no JSON": (b"{", "application/json", 400),
    "NaN": (b'{"name": "a", "runtime": "bash", "script": "x", "timeout_seconds": NaN}', "application/json", 400),
    "infinity": (
        b'{"name": "a", "runtime": "bash", "script": "x", "timeout_seconds": Infinity}',
        "application/json",
        400,
    ),
    "no UTF-8": (b'{"name": "\xff"}', "application/json", 400),
    "deep": (b"[" * 100_000, "application/json", 400),
    "a list": (b"[]", "application/json", 400),
    "a form": (b"name=a", "application/x-www-form-urlencoded", 415),
    "text": (b"{}", "text/plain", 415),
    "large": (b'{"name": "' + b"x" * 20_000_000 + b'"}', "application/json", 413),
}


def stored() -> dict[str, int]:
    rows = {model._meta.label: model._base_manager.count() for model in apps.get_models() if model._meta.managed}
    return rows | {"objects": sum(len(page) for page in storage.list_objects("", before="~"))}


def refused(client: APIClient, method: str, path: str, body: object) -> list[str]:
    before = stored()
    # Not `format="json"`: DRF's renderer would refuse what is to be sent.
    answer = client.generic(method, f"{API}/{path}", json.dumps(body), content_type="application/json")
    assert 400 <= answer.status_code < 500, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert stored() == before
    errors = answer.json()["errors"]
    assert all(error["message"] for error in errors)
    return [error["field"] for error in errors]


@pytest.mark.parametrize(("body", "field"), JOBS.values(), ids=JOBS)
def test_a_job_is_not_submitted(client: APIClient, bucket: None, body: dict[str, Any], field: str) -> None:
    assert any(told == field or told.startswith(f"{field}.") for told in refused(client, "POST", "jobs", body))


@pytest.mark.parametrize(("path", "body", "field"), OTHERS.values(), ids=OTHERS)
def test_nothing_else_is_made(client: APIClient, bucket: None, path: str, body: dict[str, Any], field: str) -> None:
    assert any(told == field or told.startswith(f"{field}.") for told in refused(client, "POST", path, body))


@pytest.mark.parametrize(("body", "content_type", "status"), RAW.values(), ids=RAW)
def test_what_is_no_json_is_not_read(
    client: APIClient, bucket: None, body: bytes, content_type: str, status: int
) -> None:
    before = stored()
    answer = client.generic("POST", f"{API}/jobs", body, content_type=content_type)  # type: ignore[arg-type]  # the stubs know text only
    assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
    assert stored() == before


def test_a_job_is_not_edited_into_nonsense(client: APIClient, submit: Callable[..., dict[str, Any]]) -> None:
    job = submit(schedules=[{"cron": "@daily"}])
    for body, field in (
        ({"priority": 10}, "priority"),
        ({"colour": "red"}, "colour"),
        ({"name": "\0"}, "name"),
        ({"dependencies": [{"job": job["id"]}]}, "dependencies"),
        ({"requirements": {"cpu": -1}}, "requirements.cpu"),
        ({"schedules": [{"id": NOBODY, "cron": "@daily"}]}, "schedules"),
    ):
        told = refused(client, "PATCH", f"jobs/{job['id']}", body)
        assert any(each.startswith(field) for each in told), (body, told)
    assert client.get(f"{API}/jobs/{job['id']}").json()["version"] == job["version"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("jobs?cursor=%00", "cursor"),
        ("jobs?cursor=!!!!", "cursor"),
        ("executions?cursor=%ED%A0%80", "cursor"),
        ("jobs?limit=0", "limit"),
        ("jobs?limit=1e3", "limit"),
        ("jobs?search=%00", "search"),
        ("jobs?colour=red", "colour"),
        ("jobs?queue=a&queue=b", "queue"),
        ("executions?job_id=7", "job_id"),
    ],
)
def test_a_list_is_not_guessed(client: APIClient, path: str, field: str) -> None:
    answer = client.get(f"{API}/{path}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == field


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\u00e9"])
def test_a_key_that_is_none_is_refused(client: APIClient, bucket: None, key: str) -> None:
    before = stored()
    answer = client.post(f"{API}/jobs", job_body(), format="json", HTTP_IDEMPOTENCY_KEY=key)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert stored() == before
