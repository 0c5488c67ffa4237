"""Limits on manual executions per job and per owner, and on dependents per job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access import owner_backlog
from jobs.access.quotas import check_dependents
from jobs.definitions.lifecycle import execute_job
from jobs.domain.errors import BacklogFull, InvalidInput
from jobs.models import Dependency, Execution, Job, OwnerQuota
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_user

pytestmark = pytest.mark.django_db


def test_manual_executions_per_job_are_limited(settings: Settings) -> None:
    settings.PUNCTUAL_JOB_BACKLOG = 3
    job, other = make_job(max_concurrency=None), make_job()
    make_execution(job=job)
    Execution.objects.update(trigger="retry")
    first, *_ = [execute_job(job.id) for _ in range(3)]
    with pytest.raises(BacklogFull, match="3 manually started executions of the job"):
        execute_job(job.id)
    execute_job(other.id)
    Execution.objects.filter(id=first).delete()
    execute_job(job.id)


def test_backlog_limit_is_configurable_per_owner_and_globally(settings: Settings) -> None:
    settings.PUNCTUAL_JOB_BACKLOG = 1
    job = make_job()
    execute_job(job.id)
    OwnerQuota.objects.create(owner=job.owner, job_backlog=2)
    execute_job(job.id)
    with pytest.raises(BacklogFull):
        execute_job(job.id)
    OwnerQuota.objects.update(job_backlog=0)
    execute_job(job.id)
    OwnerQuota.objects.all().delete()
    settings.PUNCTUAL_JOB_BACKLOG = 0
    execute_job(job.id)


def test_backlog_error_names_limit_and_retry_time(
    client: APIClient, submit: Callable[..., dict[str, Any]], settings: Settings
) -> None:
    settings.PUNCTUAL_JOB_BACKLOG = 1
    job = submit(schedules=[{"cron": "0 3 1 1 *"}])
    assert client.post(f"{API}/jobs/{job['id']}/execute").status_code == 201
    refused = client.post(f"{API}/jobs/{job['id']}/execute")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:punctual:quota")
    assert refused.json()["detail"].startswith("1 manually started executions of the job")
    assert int(refused["Retry-After"]) > 0


def test_manual_executions_per_owner_are_limited(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUNCTUAL_OWNER_BACKLOG = 3
    monkeypatch.setattr(owner_backlog, "REFUSE_TTL_SECONDS", 0)
    owner = make_user()
    job, other = make_job(owner=owner, max_concurrency=None), make_job(owner=owner)
    make_execution(job=job)
    Execution.objects.update(trigger="retry")
    first = execute_job(job.id)
    execute_job(job.id)
    execute_job(other.id)
    for each in (job, other):
        with pytest.raises(BacklogFull, match="3 of your manually started executions"):
            execute_job(each.id)
    execute_job(make_job().id)
    Execution.objects.filter(id=first).delete()
    execute_job(other.id)


def test_immediate_submission_counts_towards_owner_backlog(
    client: APIClient, submit: Callable[..., dict[str, Any]], settings: Settings
) -> None:
    settings.PUNCTUAL_OWNER_BACKLOG = 3
    submit(name="one")
    at_once = {"name": "more", "runtime": "bash", "script": "true"}
    refused = client.post(f"{API}/jobs/bulk", {"jobs": [at_once] * 3}, format="json")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:punctual:quota")
    assert refused.json()["detail"].startswith("1 of your manually started executions")
    assert int(refused["Retry-After"]) > 0
    assert not Job.objects.filter(name="more").exists()
    later = at_once | {"schedules": [{"cron": "0 3 1 1 *"}]}
    mixed = client.post(f"{API}/jobs/bulk", {"jobs": [later, at_once, later, at_once]}, format="json")
    assert mixed.status_code == 201
    assert client.post(f"{API}/jobs", at_once, format="json").status_code == 409
    assert client.post(f"{API}/jobs", later, format="json").status_code == 201


def test_owner_backlog_limit_is_configurable(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_BACKLOG = 1
    job = make_job()
    execute_job(job.id)
    OwnerQuota.objects.create(owner=job.owner, backlog=2)
    execute_job(job.id)
    with pytest.raises(BacklogFull):
        execute_job(job.id)
    OwnerQuota.objects.update(backlog=0)
    execute_job(job.id)
    OwnerQuota.objects.all().delete()
    settings.PUNCTUAL_OWNER_BACKLOG = 0
    execute_job(job.id)


def test_backlog_is_counted_only_near_the_limit(
    client: APIClient, submit: Callable[..., dict[str, Any]], settings: Settings
) -> None:
    def counts(name: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            submit(name=name)
        return sum("count_owner_backlog" in each["sql"] for each in captured)

    settings.PUNCTUAL_OWNER_BACKLOG = 100
    assert [counts(f"job {number}") for number in range(4)] == [1, 0, 0, 0]
    settings.PUNCTUAL_OWNER_BACKLOG = 9
    assert [counts(f"near {number}") for number in range(5)] == [1] * 5


def test_rejected_submissions_are_not_counted_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUNCTUAL_OWNER_BACKLOG = 1
    monkeypatch.setattr(owner_backlog, "REFUSE_TTL_SECONDS", 60)
    job = make_job()
    execute_job(job.id)
    with CaptureQueriesContext(connection) as captured:
        for _ in range(3):
            with pytest.raises(BacklogFull):
                execute_job(job.id)
    assert sum("count_owner_backlog" in each["sql"] for each in captured) == 1


def test_dependents_per_job_are_limited(
    client: APIClient, submit: Callable[..., dict[str, Any]], settings: Settings
) -> None:
    settings.PUNCTUAL_JOB_DEPENDENTS = 2
    upstream, other = submit(name="upstream", schedules=[{"cron": "0 3 1 1 *"}]), submit(name="other")
    after = {"dependencies": [{"job": upstream["id"], "condition": "success"}]}
    first = submit(name="first", **after)
    submit(name="second", **after)
    body = {"name": "third", "runtime": "bash", "script": "true", **after}
    refused = client.post(f"{API}/jobs", body, format="json")
    assert refused.status_code == 400
    assert "At most 2 jobs may run after one, and 'upstream' has that many" in refused.json()["detail"]
    assert not Job.objects.filter(name="third").exists()
    edited = client.patch(f"{API}/jobs/{other['id']}", after, format="json")
    assert (edited.status_code, edited.json()["errors"][0]["field"]) == (400, "dependencies")
    renamed = client.patch(f"{API}/jobs/{first['id']}", {"name": "renamed", **after}, format="json")
    assert renamed.status_code == 200, "existing dependents stay"
    assert client.delete(f"{API}/jobs/{first['id']}").status_code == 204
    assert client.post(f"{API}/jobs", body, format="json").status_code == 201, "deleted jobs do not count"


def test_dependents_limit_is_configurable(settings: Settings) -> None:
    settings.PUNCTUAL_JOB_DEPENDENTS = 1
    owner = make_user()
    upstream = make_job(owner=owner)
    for _ in range(2):
        Dependency.objects.create(job=make_job(owner=owner), upstream=upstream)
    with pytest.raises(InvalidInput):
        check_dependents(owner.pk, [upstream.id])
    OwnerQuota.objects.create(owner=owner, job_dependents=2)
    check_dependents(owner.pk, [upstream.id])
    OwnerQuota.objects.update(job_dependents=0)
    check_dependents(owner.pk, [upstream.id])
