"""Every error is problem+json; authentication, health and readiness."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access.tokens import generate_secret, store_token
from jobs.api.framework.problems import problem_response
from jobs.api.resources import health
from jobs.models import Artifact, Job, JobVersion, ReaperStamp
from jobs.storage import s3
from scheduler_project.localstack.engines.standalone import Engines
from tests.integration.api.conftest import API, job_body
from tests.support.factories import make_job, make_worker
from tests.support.waiting import wait_for


def test_framework_errors_are_problems(client: APIClient) -> None:
    answers = {
        404: client.get(f"{API}/jobs/00000000-0000-7000-8000-000000000000"),
        405: client.delete(f"{API}/jobs"),
        415: client.post(f"{API}/jobs", "name=x", content_type="application/x-www-form-urlencoded"),
        400: client.post(f"{API}/jobs", '{"name": ', content_type="application/json"),
        401: APIClient().get(f"{API}/jobs"),
    }
    for status, response in answers.items():
        assert response.status_code == status
        assert response["Content-Type"] == "application/problem+json"
        problem = response.json()
        assert problem["status"] == status
        assert set(problem) == {"type", "title", "status", "detail", "errors"}
    assert answers[401]["WWW-Authenticate"] == "Bearer"
    nowhere = client.get(f"{API}/nowhere")
    assert (nowhere.status_code, nowhere["Content-Type"]) == (404, "application/problem+json")


def test_concurrent_deletion_is_a_conflict(owner: User) -> None:
    """As when a queue is deleted during a submission to it, which shows at commit."""
    make_job(owner=owner)
    with transaction.atomic():
        JobVersion.objects.update(queue=UUID(int=0))
        with pytest.raises(IntegrityError) as caught:
            connection.check_constraints()
        transaction.set_rollback(True)
    assert problem_response(caught.value, {}).status_code == 409


@pytest.mark.parametrize("body", ["[" * 100_000, '{"name": ' + "9" * 5000 + "}", "[]", '"x"', "null", '{"name": NaN}'])
def test_odd_bodies_are_rejected(client: APIClient, body: str) -> None:
    response = client.post(f"{API}/jobs", body, content_type="application/json")

    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"


def test_large_body_is_rejected_before_reading(client: APIClient, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    response = client.post(f"{API}/jobs", job_body(script="x" * 2000), format="json")

    assert response.status_code == 413


def test_accept_header_and_format_cannot_fail_a_request(client: APIClient) -> None:
    assert client.get(f"{API}/jobs", headers={"Accept": "text/event-stream"}).status_code == 200


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer pun_wrong", "Basic eDp5", "pun_x", "Bearer \ud83d\ude00"]
)
def test_wrong_tokens(db: None, header: str) -> None:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=header)

    assert client.get(f"{API}/jobs").status_code == 401


def test_expired_token_and_inactive_owner(owner: User) -> None:
    now = datetime.now(UTC)
    for minutes, active, status in ((-1, True, 401), (1, True, 200), (1, False, 401)):
        User.objects.filter(id=owner.id).update(is_active=active)
        secret = generate_secret()
        store_token(owner=owner, name="t", secret=secret, expires_at=now + timedelta(minutes=minutes))
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
        assert client.get(f"{API}/jobs").status_code == status


def test_session_works_and_needs_the_csrf_token(owner: User) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(owner)
    job = make_job(owner=owner)

    assert client.get(f"{API}/jobs").status_code == 200
    refused = client.put(f"{API}/jobs/{job.id}/cancel")
    assert (refused.status_code, refused["Content-Type"]) == (403, "application/problem+json")
    assert Job.objects.get().state == "active"


def test_schema_and_docs(client: APIClient) -> None:
    schema = client.get(f"{API}/schema")
    docs = client.get(f"{API}/docs")

    assert b"/api/v1/executions/{execution_id}/logs" in schema.content
    assert docs.status_code == 200
    assert b"https://" not in docs.content


def test_missing_object_store_is_reported_and_stores_nothing(
    client: APIClient, bucket: None, engines: Engines, settings: Settings
) -> None:
    settings.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"
    s3._client.cache_clear()
    try:
        response = client.post(f"{API}/jobs", job_body(), format="json")
    finally:
        s3._client.cache_clear()

    assert response.status_code == 503
    assert response["Retry-After"]
    assert not Job.objects.exists()
    assert not Artifact.objects.filter(verified_at__isnull=False).exists(), "announced artifacts await their upload"


@pytest.fixture
def _checks_of_its_own() -> Iterator[None]:
    """Results of other tests may still be cached."""
    health._build_checks.cache_clear()
    yield
    health._build_checks.cache_clear()


def test_readiness_checks_run_once_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    hanging = threading.Event()

    def note(name: str) -> str:
        asked.append(name)
        return health.OK

    checks = [health.ReadinessCheck("database", partial(note, "database"))]
    monkeypatch.setattr(health, "_build_checks", lambda: checks)
    began = time.monotonic()
    for _ in range(100):
        assert APIClient().get("/readyz").json() == {"status": "ok", "checks": {"database": "ok"}}
    assert len(asked) <= 1 + (time.monotonic() - began) / health.ANSWER_CACHE_SECONDS
    before = len(asked)
    wait_for(lambda: APIClient().get("/readyz") and len(asked) > before, "the check runs again", seconds=10)

    checks[:] = [health.ReadinessCheck("database", lambda: str(hanging.wait(30)))]
    assert APIClient().get("/readyz").json()["checks"] == {"database": "no answer within 2 seconds"}
    began = time.monotonic()
    for _ in range(10):
        assert APIClient().get("/readyz").status_code == 503
    assert time.monotonic() - began < 5, "later probes do not wait for a hanging check"
    hanging.set()


@pytest.mark.usefixtures("_checks_of_its_own")
@pytest.mark.django_db(transaction=True)
def test_readiness(bucket: None, settings: Settings) -> None:
    client = APIClient()
    assert client.get("/healthz").json() == {"status": "ok"}

    without_worker = client.get("/readyz")
    assert (without_worker.status_code, without_worker.json()["status"]) == (200, "degraded")
    assert without_worker.json()["checks"]["workers"] == "no worker is online"
    assert without_worker.json()["checks"]["beat"] == "no beat was active for 30 seconds"
    make_worker()
    ReaperStamp.objects.update_or_create(id=1, defaults={"stamped_at": Now(), "unbroken_since": Now()})
    checks = dict.fromkeys(("database", "migrations", "redis", "storage", "workers", "beat"), "ok")
    wait_for(lambda: client.get("/readyz").json() == {"status": "ok", "checks": checks}, "all is well", seconds=10)

    settings.PUNCTUAL_REDIS_URL = "redis://127.0.0.1:1/0"
    wait_for(lambda: client.get("/readyz").json()["status"] != "ok", "the failure is noticed", seconds=10)
    without_redis = client.get("/readyz")
    assert (without_redis.status_code, without_redis.json()["status"]) == (200, "degraded")
    assert without_redis.json()["checks"] == checks | {"redis": "does not answer"}
