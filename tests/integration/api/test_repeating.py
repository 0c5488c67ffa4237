"""`Idempotency-Key`: a POST that creates is done once however often it is sent, and answered as the first time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.urls import URLPattern
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs import conf
from jobs.api.repeating import REPLAYED
from jobs.api.urls import urlpatterns
from jobs.models import Artifact, Backfill, Calendar, Execution, Job, StoredAnswer
from jobs.protocol import Report
from jobs.services import commands
from jobs.services.attempts import finish_attempt
from jobs.services.repeating import forget_answers
from jobs.states import Reason
from tests.factories import make_execution, make_job, make_schedule, make_worker, run_on
from tests.integration.api.conftest import API, client_of, job_body

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket")]

# Whoever sends these again gets what is there already, or a secret that is shown once only.
NOT_REPEATABLE = {
    "artifacts/<uuid:artifact_id>/complete",
    "schedules/preview",  # stores nothing
    "dead-letters/<uuid:execution_id>/dismiss",
    "jobs/<uuid:job_id>/pause",
    "jobs/<uuid:job_id>/resume",
    # A plain hash of its body, kept in the database, could be guessed at; and its name is taken the second time.
    "secrets",
    # A token is shown once, and stored nowhere.
    "tokens",
    "login",
    # So is what a webhook signs with; and to send a delivery twice is what receivers are prepared for.
    "webhooks",
    "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/redeliver",
    "webhooks/<uuid:webhook_id>/ping",
    "webhooks/<uuid:webhook_id>/rotate",
    # Workers have an identity of their own for what they say twice.
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
    finish_attempt(run_on(make_worker(), execution), Report(Reason.EXIT, exit_code=3))
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
def test_the_same_again_is_answered_as_before_and_done_once(case: str, client: APIClient, owner: User) -> None:
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
    assert send(client, path, body, key="another").get(REPLAYED) is None, "not even where it is refused"


def test_it_is_answered_as_before_although_what_it_needed_is_gone(client: APIClient, owner: User) -> None:
    job = make_job(owner=owner)
    first = send(client, f"jobs/{job.id}/execute")
    commands.delete_job(job.id, by="test")

    assert send(client, f"jobs/{job.id}/execute").content == first.content
    assert send(client, f"jobs/{job.id}/execute", key="another").status_code == 404


def test_another_body_or_address_is_refused_and_names_the_header(client: APIClient, owner: User) -> None:
    send(client, "jobs", job_body())

    for path, body in (("jobs", job_body(name="other")), ("calendars", {"name": "x"})):
        refused = send(client, path, body)
        assert (refused.status_code, refused["Content-Type"]) == (422, "application/problem+json")
        assert [error["field"] for error in refused.json()["errors"]] == ["Idempotency-Key"]
    assert (Job.objects.count(), Calendar.objects.count()) == (1, 0)


def test_the_keys_of_others_are_others(client: APIClient, stranger: APIClient) -> None:
    mine, theirs = send(client, "jobs", job_body()), send(stranger, "jobs", job_body())

    assert mine.json()["id"] != theirs.json()["id"]
    assert theirs.get(REPLAYED) is None


def test_a_key_belongs_to_the_owner_and_not_to_the_token(client: APIClient, owner: User) -> None:
    first = send(client, "jobs", job_body())

    assert send(client_of(owner), "jobs", job_body()).content == first.content


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256, "a\tb"])
def test_a_key_that_is_none_is_refused(client: APIClient, key: str) -> None:
    refused = send(client, "jobs", job_body(), key=key)

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert not Job.objects.exists()


def test_what_is_refused_is_not_remembered(client: APIClient) -> None:
    body = job_body(queue="none")
    assert send(client, "jobs", body).status_code == 400
    assert not StoredAnswer.objects.exists()
    assert send(client, "jobs", job_body()).status_code == 201, "the key is still free"


def test_an_answer_that_is_too_large_to_be_kept_is_refused_and_nothing_is_created(
    client: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf, "MAX_STORED_ANSWER_BYTES", 100)

    refused = send(client, "jobs", job_body())
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "Idempotency-Key")
    assert not Job.objects.exists()


def test_a_body_that_is_too_large_is_refused(client: APIClient, settings: Settings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert send(client, "jobs", job_body(script="x" * 2000)).status_code == 413


def test_after_its_time_a_key_is_new_and_its_row_is_deleted(client: APIClient) -> None:
    first = send(client, "jobs", job_body())
    send(client, "jobs", job_body(), key="kept")
    StoredAnswer.objects.filter(key="k").update(expires_at=F("created_at") - timedelta(seconds=1))

    again = send(client, "jobs", job_body(name="other"))
    assert (again.status_code, again.get(REPLAYED)) == (201, None)
    assert again.json()["id"] != first.json()["id"]
    assert StoredAnswer.objects.count() == 2

    assert forget_answers() == 0
    StoredAnswer.objects.filter(key="k").update(expires_at=F("created_at") - timedelta(seconds=1))
    assert forget_answers() == 1
    assert StoredAnswer.objects.get().key == "kept"


def test_the_address_of_an_upload_is_not_given_again_when_it_may_be_over(client: APIClient) -> None:
    send(client, "artifacts", {"sha256": "a" * 64, "size": 3})

    kept = StoredAnswer.objects.get()
    assert kept.expires_at - kept.created_at <= timedelta(seconds=conf.UPLOAD_URL_SECONDS / 2)


def test_every_post_either_takes_the_key_or_says_why_not() -> None:
    posts = {
        str(pattern.pattern): pattern.callback.view_class.post  # type: ignore[attr-defined]
        for pattern in urlpatterns
        if isinstance(pattern, URLPattern) and hasattr(getattr(pattern.callback, "view_class", None), "post")
    }
    assert {path for path, post in posts.items() if not hasattr(post, "__wrapped__")} == NOT_REPEATABLE
