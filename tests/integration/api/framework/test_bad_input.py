"""Invalid input is rejected with field and message and stores nothing: no row, no object.

What has the wrong shape is in test_malformed.py, which is made from the schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.models import Dependency, Execution
from tests.integration.api.conftest import API, job_body
from tests.support.factories import make_job, make_schedule
from tests.support.malformed import NOBODY
from tests.support.one_of_each import OF_A_RUN, OF_A_WORKER, OneOfEach, refused_fields
from tests.support.rest_workers import STALE, chunk, offer
from tests.support.stored import stored

PAST, LATER_PAST = "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"
# One of each kind in tests/unit/domain/test_text_validation.py.
UNREADABLE = (" ", "\u200b", "a\nb", "a\u202eb", "a\u2066b")
READABLE = ("cafe\u0301", "\u212b", "\U0001f469\u200d\U0001f680", "  kept  as it is ", "x\u0335\u0336\u0337" * 10)


def scheduled(**schedule: object) -> dict[str, Any]:
    return job_body(schedules=[schedule])


def needing(**requirements: object) -> dict[str, Any]:
    return job_body(requirements=requirements)


JOBS: list[tuple[dict[str, Any], str]] = [
    (job_body(name=""), "name"),
    (job_body(env={"A=B": "1"}), "env"),
    (job_body(env={"PUNCTUAL_ATTEMPT": "1"}), "env"),
    (job_body(env={f"A{n}": "" for n in range(257)}), "env"),
    (job_body(args=["x" * 1000] * 100), "args"),
    (job_body(runtime="cobol"), "runtime"),
    (job_body(artifact=NOBODY), "script"),
    (job_body(script=None, artifact=NOBODY), "artifact"),
    (job_body(inputs=[{"path": "../a", "artifact": NOBODY}]), "inputs.0.path"),
    (job_body(inputs=[{"path": "a\u202eb", "artifact": NOBODY}]), "inputs.0.path"),
    (job_body(secrets=[{"name": "NONE", "env": "A"}]), "secrets.0.name"),
    (job_body(queue="no such\u202equeue"), "queue"),
    (job_body(dependencies=[{"job": NOBODY}]), "dependencies.0.job"),
    (job_body(timeout_seconds=0), "timeout_seconds"),
    (job_body(retry={"max_attempts": 0}), "retry.max_attempts"),
    (job_body(retry={"backoff_seconds": -1}), "retry.backoff_seconds"),
    (job_body(retry={"jitter": 2}), "retry.jitter"),
    (scheduled(cron="61 * * * *"), "schedules.0.cron"),
    (scheduled(cron="0 0 30 2 *"), "schedules.0.cron"),
    (scheduled(cron="* * * * * *"), "schedules.0.cron"),
    (scheduled(cron="\u0661 * * * *"), "schedules.0.cron"),
    (scheduled(cron="@daily", timezone="Mars/Olympus"), "schedules.0.timezone"),
    (scheduled(cron="@daily", timezone="../../etc/passwd"), "schedules.0.timezone"),
    (scheduled(cron="@daily", every_seconds=5), "schedules.0.every_seconds"),
    (scheduled(every_seconds=-5), "schedules.0.every_seconds"),
    (scheduled(every_seconds=1e-300), "schedules.0.every_seconds"),
    (scheduled(delay_seconds=0), "schedules.0.delay_seconds"),
    (scheduled(solar="sunset 91,0"), "schedules.0.solar"),
    (scheduled(at=PAST), "schedules.0.at"),
    (scheduled(at=PAST, max_count=1), "schedules.0.at"),
    (scheduled(at="9999-12-31T23:59:59Z"), "schedules.0.at"),
    (scheduled(cron="@daily", ends_at=PAST), "schedules.0.ends_at"),
    (scheduled(cron="@daily", starts_at=PAST, ends_at=LATER_PAST), "schedules.0.ends_at"),
    (scheduled(every_seconds=60, starts_at=PAST, ends_at=LATER_PAST), "schedules.0.ends_at"),
    (
        scheduled(cron="@daily", starts_at="2031-01-02T00:00:00Z", ends_at="2031-01-01T00:00:00Z"),
        "schedules.0.ends_at",
    ),
    (scheduled(cron="@daily", excluded_dates=["0001-01-01"]), "schedules.0.excluded_dates"),
    (scheduled(cron="@daily", calendar="none"), "schedules.0.calendar"),
    (needing(cpu=0), "requirements.cpu"),
    (needing(capabilities=["Upper"]), "requirements.capabilities"),
    (needing(capabilities=["\u200b"]), "requirements.capabilities"),
    (needing(resources={"gpu": -1}), "requirements.resources.gpu"),
    (needing(resources={"cpu": 1}), "requirements.resources"),
]
WORKERS: list[tuple[str, dict[str, Any], str]] = [
    ("workers/register", offer(pool="a b"), "pool"),
    ("workers/register", offer(host="\u202e"), "host"),
    ("workers/register", offer(capabilities=["\u200b"]), "capabilities.0"),
    ("workers/register", offer(resources={"a b": 1}), "resources"),
    ("workers/register", offer(details={"a": 1e308, "b": ["\0"]}), "details"),
    *((f"{OF_A_RUN}logs", {"chunks": [chunk(0, b"") | {"base64": text}]}, "chunks.0.base64") for text in (
        "%%%%", "YQ", "YQ==\n", "-_8=", "YQ==YQ==", "\u0661\u0661==", "A" * 100_000,
    )),
    (f"{OF_A_RUN}logs", {"chunks": [chunk(0, b"a"), chunk(0, b"b")]}, "chunks"),
    (f"{OF_A_RUN}logs", {"chunks": [chunk(0, b"a", at="1999-01-01T00:00:00Z")]}, "chunks.0.at"),
    (f"{OF_A_RUN}logs", {"chunks": [chunk(-1, b"a")]}, "chunks.0.sequence"),
    *((f"{OF_A_RUN}outputs", {"size": 1, "sha256": sha256}, "sha256") for sha256 in (
        "0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n", "\u0660" * 64,
    )),
    (f"{OF_A_RUN}outputs", {"size": -1, "sha256": "0" * 64}, "size"),
    *((f"{OF_A_RUN}complete", {"reason": "exit", "outputs": [{"name": name, "size": 1, "sha256": "0" * 64}]},
       "outputs.0.name") for name in ("../a", "/a", "a//b", "a\u202eb", "a\\b", "a\nb", "x" * 300)),
    (f"{OF_A_RUN}complete", {"reason": "exit", "outputs": [{"name": "a", "size": 1, "sha256": "0" * 64}] * 2},
     "outputs"),
    (f"{OF_A_RUN}complete", {"reason": "lost"}, "reason"),
    (f"{OF_A_WORKER}heartbeat", {"held": [], "usage": {"runs": -1}}, "usage.runs"),
]  # fmt: skip
BACKFILL, EXECUTE = "jobs/{job_id}/backfill", "jobs/{job_id}/execute"
OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    ("post", "jobs/bulk", {"jobs": [job_body(), job_body(priority=10)]}, "jobs.1.priority"),
    ("post", "jobs/bulk", {"jobs": [job_body(), job_body(name="\u202e")]}, "jobs.1.name"),
    ("post", "jobs/bulk", {"jobs": [job_body(), scheduled(at=PAST)]}, "jobs.1.schedules.0.at"),
    ("post", "jobs/bulk", {"jobs": []}, "jobs"),
    ("patch", "jobs/{job_id}", {"name": " "}, "name"),
    ("patch", "jobs/{job_id}", {"requirements": {"cpu": -1}}, "requirements.cpu"),
    ("patch", "jobs/{job_id}", {"schedules": [{"id": NOBODY, "cron": "@daily"}]}, "schedules.0.id"),
    ("patch", "jobs/{job_id}", {"schedules": [{"at": PAST}]}, "schedules.0.at"),
    ("patch", "jobs/{job_id}", {"schedules": [{"id": "{schedule_id}", "ends_at": PAST}]}, "schedules.0.ends_at"),
    ("patch", "jobs/{job_id}", {"dependencies": [{"job": "{job_id}"}]}, "dependencies.0.job"),
    ("post", BACKFILL, {"from": LATER_PAST, "to": PAST}, "from"),
    ("post", BACKFILL, {"from": PAST, "to": PAST}, "from"),
    ("post", BACKFILL, {"from": PAST, "to": "2100-01-01T00:00:00Z"}, "to"),
    ("post", BACKFILL, {"from": "0001-01-01T00:00:00Z", "to": PAST}, "from"),
    ("post", BACKFILL, {"from": PAST, "to": LATER_PAST, "schedule": NOBODY}, "schedule"),
    ("post", EXECUTE, {"worker_id": NOBODY}, "worker_id"),
    ("post", "schedules/preview", {"schedules": [{"at": PAST}]}, "schedules.0.at"),
    ("post", "schedules/preview", {"schedules": [{"cron": "61 * * * *"}]}, "schedules.0.cron"),
    ("post", "calendars", {"name": "c", "dates": ["2030-02-30"]}, "dates.0"),
    ("patch", "calendars/{calendar_id}", {"dates": ["0001-01-01"]}, "dates"),
    ("patch", "calendars/{calendar_id}", {"name": "\u2066"}, "name"),
    ("post", "secrets", {"name": "a b", "value": "abcd"}, "name"),
    ("post", "secrets", {"name": "\u202eA", "value": "abcd"}, "name"),
    ("put", "secrets/{secret_id}", {"value": "abc"}, "value"),
    ("put", "secrets/{secret_id}", {"value": "\u00e9" * 40_000}, "value"),
    ("post", "tokens", {"name": "t", "expires_at": PAST}, "expires_at"),
    ("post", "tokens", {"name": "t", "expires_at": "9999-01-01T00:00:00Z"}, "expires_at"),
    ("post", "tokens", {"name": "t", "expires_at": None, "expires_in_days": 1}, "expires_at"),
    ("post", "tokens", {"name": "t", "pool": "default"}, "pool"),
    ("post", "webhooks", {"name": "w", "url": "https://127.0.0.1/"}, "url"),
    ("post", "webhooks", {"name": "w", "url": "javascript:alert(1)"}, "url"),
    ("post", "webhooks", {"name": "w", "url": "https://a.example/", "job": NOBODY}, "job"),
    ("patch", "webhooks/{webhook_id}", {"url": "http://169.254.169.254/"}, "url"),
    ("patch", "webhooks/{webhook_id}", {"events": []}, "events"),
    ("patch", "webhooks/{webhook_id}", {"name": "\u200b"}, "name"),
    ("post", "artifacts", {"sha256": "A" * 64, "size": 1}, "sha256"),
    ("post", "artifacts", {"sha256": "0" * 64, "size": -1}, "size"),
    ("post", "artifacts", {"sha256": "0" * 64, "size": 5 * 1024**3 + 1}, "size"),
]  # fmt: skip
NAMED = [
    ("jobs", job_body()),
    ("calendars", {"dates": []}),
    ("tokens", {}),
    ("login", {"username": "somebody", "password": "secret"}),
    ("webhooks", {"url": "https://example.com/"}),
    ("workers/register", offer()),
]
RAW = {
    "no JSON": (b"{", "application/json", 400),
    "NaN": (b'{"timeout_seconds": NaN}', "application/json", 400),
    "infinity": (b'{"timeout_seconds": -Infinity}', "application/json", 400),
    "no end of digits": (b'{"priority": ' + b"9" * 5000 + b"}", "application/json", 400),
    "no UTF-8": (b'{"name": "\xff"}', "application/json", 400),
    "UTF-16": ('{"name": "a"}'.encode("utf-16"), "application/json", 400),
    "another alphabet": (b'{"name": "\xe9"}', "application/json; charset=latin-1", 400),
    "no alphabet": (b"{}", "application/json; charset=zlib", 400),
    "deep": (b"[" * 100_000, "application/json", 400),
    "deep objects": (b'{"a":' * 100_000, "application/json", 400),
    "a list": (b"[]", "application/json", 400),
    "nothing": (b"", "application/json", 400),
    "a form": (b"name=a", "application/x-www-form-urlencoded", 415),
    "text": (b"{}", "text/plain", 415),
    "large": (b'{"name": "' + b"x" * 20_000_000 + b'"}', "application/json", 413),
}


@pytest.fixture
def world(owner: User, client: APIClient, bucket: None, settings: Settings) -> OneOfEach:
    return OneOfEach(owner, client, settings)


def check_refused(world: OneOfEach, cases: list[tuple[str, str, dict[str, Any], str]]) -> None:
    before, wrong = stored(), {}
    for method, path, body, field in cases:
        answer = world.send(method, path, world.written(body))
        fields = refused_fields(answer)
        if not any(each == field or each.startswith(f"{field}.") for each in fields):
            wrong[method, path, f"{body!r:.200}"] = field, answer.status_code, answer.content[:200]
    assert wrong == {}
    assert stored() == before


def test_invalid_job_is_not_submitted(world: OneOfEach) -> None:
    check_refused(world, [("post", "jobs", body, field) for body, field in JOBS])


def test_other_invalid_input_is_rejected(world: OneOfEach) -> None:
    check_refused(world, OTHERS)


def test_invalid_worker_input_is_rejected(world: OneOfEach) -> None:
    fences = {path: {} if path == "workers/register" else world.valid("post", path) for path, _, _ in WORKERS}
    check_refused(world, [("post", path, fences[path] | body, field) for path, body, field in WORKERS])


def test_worker_without_attempt_writes_nothing(world: OneOfEach) -> None:
    before = stored()
    for verb in ("start", "logs", "outputs", "complete"):
        valid = world.valid("post", f"{OF_A_RUN}{verb}")
        for change, status in (({"attempt": 99}, 409), ({"incarnation": 99}, 409), ({"worker_id": NOBODY}, 404)):
            answer = world.send("post", f"{OF_A_RUN}{verb}", json.dumps(valid | change))
            assert answer.status_code == status, (verb, change, answer.content)
            assert status == 404 or answer.json()["type"] == STALE
    missing = {"outputs": [{"name": "a", "size": 1, "sha256": "0" * 64}]}
    path = f"{OF_A_RUN}complete"
    assert world.send("post", path, json.dumps(world.valid("post", path) | missing)).status_code == 409
    assert stored() == before


@pytest.mark.parametrize(("path", "body"), NAMED, ids=[path for path, _ in NAMED])
def test_name_must_be_readable(world: OneOfEach, path: str, body: dict[str, Any]) -> None:
    check_refused(world, [("post", path, body | {"name": name}, "name") for name in UNREADABLE])
    for name in READABLE:
        answer = world.send("post", path, json.dumps(body | {"name": name}))
        assert answer.status_code == 201, (name, answer.content)
        assert path == "workers/register" or answer.json()["name"] == name


def test_text_round_trips_unchanged(client: APIClient, bucket: None) -> None:
    text = "".join(READABLE)
    body = job_body(name=text[:200], args=list(READABLE), env={"A": text}, script=f"echo '{text}'")
    data = client.post(f"{API}/jobs", body, format="json").json()
    assert {name: data[name] for name in ("name", "args", "env")} == {n: body[n] for n in ("name", "args", "env")}
    assert client.get(f"{API}/jobs/{data['id']}").json()["env"] == {"A": text}


@pytest.mark.parametrize("length", [2, 3, 30])
def test_dependency_cycle_is_rejected(client: APIClient, owner: User, length: int) -> None:
    chain = [make_job(owner=owner, name=f"job {number}") for number in range(length)]
    make_schedule(job=chain[0])
    edges = zip(chain[1:], chain, strict=False)
    Dependency.objects.bulk_create([Dependency(job=job, upstream=upstream) for job, upstream in edges])
    before = Dependency.objects.count()
    body = {"dependencies": [{"job": str(chain[-1].id)}]}
    answer = client.patch(f"{API}/jobs/{chain[0].id}", body, format="json")
    assert refused_fields(answer) == ["dependencies"]
    assert "cycle" in answer.json()["detail"]
    assert Dependency.objects.count() == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"name": "a", "name": "b", "runtime": "bash", "script": "x"}', "name"),
        ('{"name": "a", "runtime": "bash", "script": "x", "env": {"A": "1", "A": "2"}}', "A"),
        ('{"name": "a", "runtime": "bash", "script": "x", "schedules": [{"every_seconds": 5, "every_seconds": 6}]}',
         "every_seconds"),
    ],
)  # fmt: skip
def test_repeated_json_name_is_rejected(client: APIClient, bucket: None, body: str, field: str) -> None:
    before = stored()
    answer = client.generic("POST", f"{API}/jobs", body, content_type="application/json")
    assert refused_fields(answer) == [field]
    assert "twice" in answer.json()["detail"]
    assert stored() == before


def test_invalid_json_is_rejected(client: APIClient, bucket: None) -> None:
    before, wrong = stored(), {}
    for name, (body, content_type, status) in RAW.items():
        answer = client.generic("POST", f"{API}/jobs", body, content_type=content_type)  # type: ignore[arg-type]  # the stubs know text only
        if (answer.status_code, answer["Content-Type"]) != (status, "application/problem+json"):
            wrong[name] = answer.status_code, answer.content
    assert wrong == {}
    assert stored() == before


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("jobs?cursor=%00", "cursor"),
        ("jobs?cursor=!!!!", "cursor"),
        ("executions?cursor=%ED%A0%80", "cursor"),
        ("calendars?cursor=AAAA", "cursor"),
        ("jobs?limit=0", "limit"),
        ("jobs?limit=1e3", "limit"),
        ("jobs?colour=red", "colour"),
        ("jobs?queue=a&queue=b", "queue"),
        (f"executions?scheduled_from={LATER_PAST}&scheduled_to={PAST}", "scheduled_from"),
        (f"executions?ended_from={LATER_PAST}&ended_to={PAST}", "ended_from"),
        (f"audit?from={LATER_PAST}&to={PAST}", "from"),
        (f"audit/attempts?from={LATER_PAST}&to={PAST}", "from"),
        (f"audit/firings?from={LATER_PAST}&to={PAST}", "from"),
        (f"logs/search?q=word&from={LATER_PAST}&to={PAST}", "from"),
        ("logs/search?q=ab", "q"),
        ("logs/search?q=" + "x" * 257, "q"),
        ("logs/search?q=%22open", "q"),
        ("logs/search?q=a%0Ab%0Ac&mode=substring", "q"),
        ("logs/search?q=word&cursor=W10", "cursor"),
        ("logs/search?q=word&cursor=" + "W" * 300, "cursor"),
    ],
)
def test_invalid_query_is_rejected(client: APIClient, path: str, field: str) -> None:
    assert refused_fields(client.get(f"{API}/{path}")) == [field]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\u00e9"])
def test_invalid_idempotency_key_is_rejected(client: APIClient, bucket: None, key: str) -> None:
    before = stored()
    answer = client.post(f"{API}/jobs", job_body(), format="json", HTTP_IDEMPOTENCY_KEY=key)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert stored() == before


@pytest.mark.parametrize("header", ["x", '"', '"a" "b"', "W/", "\u00e9", '"' + "x" * 10_000, ",,,"])
def test_malformed_headers_are_ignored(world: OneOfEach, client: APIClient, header: str) -> None:
    """A malformed ETag matches nothing; an unknown Last-Event-ID starts from the beginning."""
    before = stored()
    path = world.address("jobs/{job_id}")
    assert client.patch(path, {"priority": 1}, format="json", HTTP_IF_MATCH=header).status_code == 412
    assert client.get(path, HTTP_IF_NONE_MATCH=header, HTTP_RANGE=header).status_code == 200
    assert stored() == before
    Execution.objects.update(state="succeeded", ended_at="2030-01-01T00:00:00Z", worker=None, incarnation=None)
    path = world.address("executions/{execution_id}")
    for address in (f"{path}?follow=1", f"{path}/logs?follow=1", f"{path}/logs"):
        answer = client.get(address, HTTP_LAST_EVENT_ID=header, HTTP_RANGE=header)
        assert answer.status_code in (200, 204), (address, answer.status_code)


def test_absurd_backfill_range_is_rejected(client: APIClient, owner: User, bucket: None) -> None:
    job = make_job(owner=owner)
    make_schedule(job=job, starts_at="2000-01-01T00:00:00Z")
    before = stored()
    body = {"from": "2000-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    assert refused_fields(client.post(f"{API}/jobs/{job.id}/backfill", body, format="json")) == ["from"]
    assert stored() == before
