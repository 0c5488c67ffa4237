"""`Idempotency-Key`: a repeated POST creates once and gets the first answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access.idempotency import prune_responses
from jobs.api.framework.idempotency import REPLAYED
from jobs.api.urls import urlpatterns
from jobs.db import transactions
from jobs.definitions import lifecycle
from jobs.domain import limits
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.models import Artifact, Backfill, Calendar, Execution, IdempotencyClaim, Job, StoredAnswer
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.factories import make_execution, make_job, make_schedule, make_worker, run_on

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket")]

# Repeating these returns the existing object, or would return a secret that is shown once.
NOT_REPEATABLE = {
    "artifacts/<uuid:artifact_id>/complete",
    "schedules/preview",  # stores nothing
    "dead-letters/<uuid:execution_id>/dismiss",
    "jobs/<uuid:job_id>/pause",
    "jobs/<uuid:job_id>/resume",
    # A stored hash of its body could be brute-forced; its unique name already prevents a second one.
    "secrets",
    # A token is shown once and not stored.
    "tokens",
    "login",
    # So is a webhook's secret; and receivers must tolerate repeated deliveries anyway.
    "webhooks",
    "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/redeliver",
    "webhooks/<uuid:webhook_id>/ping",
    "webhooks/<uuid:webhook_id>/rotate",
    # The attempt fence makes reports of workers idempotent.
    "executions/<uuid:execution_id>/complete",
    "executions/<uuid:execution_id>/logs",
    "executions/<uuid:execution_id>/outputs",
    "executions/<uuid:execution_id>/start",
    "workers/<uuid:worker_id>/claim",
    "workers/<uuid:worker_id>/drain",
    "workers/<uuid:worker_id>/heartbeat",
    "workers/<uuid:worker_id>/leave",
    "workers/register",
}


def send(client: APIClient, path: str, body: Any = None, *, key: str = "k") -> Any:
    return client.post(f"{API}/{path}", body or {}, format="json", headers={"Idempotency-Key": key})


def failed_execution(owner: User) -> Execution:
    execution = make_execution(job=make_job(owner=owner))
    finish_attempt(run_on(make_worker(), execution), RunReport(Reason.EXIT, exit_code=3))
    return execution


def past_job(owner: User) -> Job:
    return make_schedule(job=make_job(owner=owner)).job


Case = Callable[[User], tuple[str, dict[str, Any]]]
CASES: dict[str, tuple[Case, type[Any], int]] = {
    "jobs": (lambda owner: ("jobs", job_body()), Job, 201),
    "execute": (lambda owner: (f"jobs/{make_job(owner=owner).id}/execute", {}), Execution, 201),
    "retry": (lambda owner: (f"executions/{failed_execution(owner).id}/retry", {}), Execution, 201),
    "redrive": (lambda owner: (f"dead-letters/{failed_execution(owner).id}/redrive", {}), Execution, 201),
    "backfill": (
        lambda owner: (
            f"jobs/{past_job(owner).id}/backfill",
            {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:01:00Z"},
        ),
        Backfill,
        202,
    ),
    "calendars": (lambda owner: ("calendars", {"name": "holidays", "dates": ["2030-01-01"]}), Calendar, 201),
    "artifacts": (lambda owner: ("artifacts", {"sha256": "a" * 64, "size": 3}), Artifact, 201),
}


@pytest.mark.parametrize("case", CASES)
def test_repeated_request_is_replayed(case: str, client: APIClient, owner: User) -> None:
    make, model, status = CASES[case]
    path, body = make(owner)
    before = model.objects.count()

    first, again = send(client, path, body), send(client, path, body)

    assert (first.status_code, again.status_code) == (status, status), first.content
    assert again.content == first.content
    assert again["Content-Type"] == first["Content-Type"] == "application/json"
    assert again.get("Location") == first.get("Location")
    assert (first.get(REPLAYED), again.get(REPLAYED)) == (None, "true")
    assert model.objects.count() == before + 1
    assert send(client, path, body, key="another").get(REPLAYED) is None, "not even in a rejected request"


def test_replay_works_after_its_artifact_is_gone(client: APIClient, owner: User) -> None:
    job = make_job(owner=owner)
    first = send(client, f"jobs/{job.id}/execute")
    lifecycle.delete_job(job.id, by="test")

    assert send(client, f"jobs/{job.id}/execute").content == first.content
    assert send(client, f"jobs/{job.id}/execute", key="another").status_code == 404


def test_key_with_other_body_or_url_is_rejected(client: APIClient, owner: User) -> None:
    send(client, "jobs", job_body())

    for path, body in (("jobs", job_body(name="other")), ("calendars", {"name": "x"})):
        refused = send(client, path, body)
        assert (refused.status_code, refused["Content-Type"]) == (422, "application/problem+json")
        assert [error["field"] for error in refused.json()["errors"]] == ["Idempotency-Key"]
    assert (Job.objects.count(), Calendar.objects.count()) == (1, 0)


def test_keys_are_scoped_to_user(client: APIClient, stranger: APIClient) -> None:
    own, foreign = send(client, "jobs", job_body()), send(stranger, "jobs", job_body())

    assert own.json()["id"] != foreign.json()["id"]
    assert foreign.get(REPLAYED) is None


def test_key_belongs_to_user_and_not_to_token(client: APIClient, owner: User) -> None:
    first = send(client, "jobs", job_body())

    assert send(client_of(owner), "jobs", job_body()).content == first.content


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256, "a\tb"])
def test_invalid_idempotency_key_is_rejected(client: APIClient, key: str) -> None:
    refused = send(client, "jobs", job_body(), key=key)

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert not Job.objects.exists()


def test_rejected_request_is_not_remembered(client: APIClient) -> None:
    body = job_body(queue="none")
    assert send(client, "jobs", body).status_code == 400
    assert not StoredAnswer.objects.exists()
    assert send(client, "jobs", job_body()).status_code == 201, "the key is still free"


def test_response_too_large_to_store_is_rejected_and_creates_nothing(
    client: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_STORED_ANSWER_BYTES", 100)

    refused = send(client, "jobs", job_body())
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert not Job.objects.exists()


def test_oversized_body_is_rejected(client: APIClient, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert send(client, "jobs", job_body(script="x" * 2000)).status_code == 413


def test_expired_key_is_reusable_and_deleted(client: APIClient) -> None:
    first = send(client, "jobs", job_body())
    send(client, "jobs", job_body(), key="kept")
    StoredAnswer.objects.filter(key="k").update(expires_at=F("created_at") - timedelta(seconds=1))

    again = send(client, "jobs", job_body(name="other"))
    assert (again.status_code, again.get(REPLAYED)) == (201, None)
    assert again.json()["id"] != first.json()["id"]
    assert StoredAnswer.objects.count() == 2

    assert prune_responses() == 0
    StoredAnswer.objects.filter(key="k").update(expires_at=F("created_at") - timedelta(seconds=1))
    assert prune_responses() == 1
    assert StoredAnswer.objects.get().key == "kept"


def test_old_keys_are_deleted_in_batches(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BATCH_ROWS", 2)
    for n, ago in enumerate([2, 2, 2, 0]):
        over_at = datetime.now(UTC) - timedelta(hours=ago)
        IdempotencyClaim.objects.create(owner=owner, key=f"k{n}", expires_at=over_at)
    with CaptureQueriesContext(connection) as asked:
        prune_responses()
    deleted = [query["sql"] for query in asked if query["sql"].startswith('DELETE FROM "jobs_idempotencyclaim"')]
    assert len(deleted) == 2
    assert IdempotencyClaim.objects.get().key == "k3"


def test_upload_url_is_not_replayed_after_expiry(client: APIClient) -> None:
    send(client, "artifacts", {"sha256": "a" * 64, "size": 3})

    kept = StoredAnswer.objects.get()
    assert kept.expires_at - kept.created_at <= timedelta(seconds=limits.UPLOAD_URL_SECONDS / 2)


def test_every_post_supports_idempotency_or_is_listed() -> None:
    posts = {
        str(pattern.pattern): pattern.callback.view_class.post  # type: ignore[attr-defined]
        for pattern in urlpatterns
        if isinstance(pattern, URLPattern) and hasattr(getattr(pattern.callback, "view_class", None), "post")
    }
    assert {path for path, post in posts.items() if not hasattr(post, "__wrapped__")} == NOT_REPEATABLE
