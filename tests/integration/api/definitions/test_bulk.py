"""POST /jobs/bulk: many jobs in one transaction, all or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.domain import limits
from jobs.models import Artifact, Dependency, Execution, Job, OwnerQuota, Schedule
from jobs.scheduling import calendars
from jobs.scheduling.firing import fire_due_schedules
from jobs.storage import s3
from jobs.storage.artifacts import MAX_LOCKED_HASHES
from jobs.storage.quota import MEGABYTE
from jobs.verify.firings import audit_firings
from tests.integration.api.conftest import API, job_body
from tests.support.factories import make_job
from tests.support.submitting import store_script

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket")]


def submit(client: APIClient, jobs: object, **headers: str) -> Any:
    return client.post(f"{API}/jobs/bulk", {"jobs": jobs}, format="json", headers=headers)


def test_bulk_jobs_equal_jobs_submitted_alone(client: APIClient, owner: User) -> None:
    upstream = make_job(owner=owner)
    file = store_script(owner=owner, script="a;b")
    calendars.create_calendar(owner=owner, name="holidays", dates=[datetime(2031, 1, 1, tzinfo=UTC).date()])
    bodies = [
        job_body(name="now", stdin="text", inputs=[{"path": "a.csv", "artifact": str(file.id)}]),
        job_body(name="cron", schedules=[{"cron": "0 3 * * *", "calendar": "holidays"}, {"every_seconds": 60}]),
        job_body(name="after", dependencies=[{"job": str(upstream.id)}], retry={"max_attempts": 3}),
        job_body(name="uploaded", script=None, artifact=str(file.id), priority=9, env={"A": "b"}),
    ]

    answer = submit(client, bodies)

    assert answer.status_code == 201, answer.content
    assert [each["name"] for each in answer.json()["results"]] == ["now", "cron", "after", "uploaded"]
    for body, each in zip(bodies, answer.json()["results"], strict=True):
        data = client.get(f"{API}/jobs/{each['id']}").json()
        alone = client.post(f"{API}/jobs", body, format="json").json()
        for one in (data, alone):
            for name in ("id", "created_at", "updated_at", "next_instant", "warnings"):
                one.pop(name, None)
            for schedule in one["schedules"]:
                for name in ("id", "starts_at", "next_instant", "in_words"):
                    schedule.pop(name)
        assert data == alone
    assert Execution.objects.count() == 4, "jobs without schedule and dependency run at once"
    assert Dependency.objects.count() == 2


def test_schedules_of_bulk_jobs_fire_and_pass_audit(client: APIClient) -> None:
    submit(client, [job_body(schedules=[{"every_seconds": 60}], max_concurrency=None) for _ in range(3)])
    past = datetime.now(UTC) - timedelta(minutes=5)
    assert Schedule.objects.filter(next_instant__isnull=False, history__number=1).count() == 3
    assert fire_due_schedules().schedules == 0
    assert audit_firings(past, datetime.now(UTC)).clean


def test_query_count_is_constant_and_equal_scripts_are_stored_once(client: APIClient) -> None:
    def statements(count: int, script: str) -> int:
        bodies = [job_body(name=f"{n}", script=script, schedules=[{"every_seconds": 60}]) for n in range(count)]
        with (
            CaptureQueriesContext(connection) as captured,
            patch.object(s3, "put_artifact", wraps=s3.put_artifact) as put,
        ):
            assert submit(client, bodies).status_code == 201
        assert put.call_count == 1
        return len(captured)

    statements(1, "echo one")  # records the token's last use, which happens once a minute
    assert statements(2, "echo two") == statements(40, "echo forty")


def test_different_scripts_are_all_stored(client: APIClient) -> None:
    count = MAX_LOCKED_HASHES + 2
    answer = submit(client, [job_body(script=f"echo {n}") for n in range(count)])
    assert answer.status_code == 201
    assert Artifact.objects.filter(verified_at__isnull=False).count() == count
    for job in Job.objects.select_related("current_version__artifact"):
        assert job.current_version is not None
        assert s3.read_artifact_size(job.current_version.artifact.sha256) == job.current_version.artifact.size


@pytest.mark.parametrize("count", [3, MAX_LOCKED_HASHES + 2])
def test_scripts_over_quota_are_not_stored(client: APIClient, settings: Settings, count: int) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    size = MEGABYTE // count + 1
    bodies = [job_body(script=f"# {n}".ljust(size)) for n in range(count)]

    refused = submit(client, bodies)
    assert (refused.status_code, Job.objects.exists(), Artifact.objects.exists()) == (413, False, False)
    assert "of storage are used" in refused.json()["detail"]
    assert submit(client, bodies[1:]).status_code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schedules": [{"every_seconds": 5}, {"cron": "nonsense"}]}, "schedules.1.cron"),
        ({"schedules": [{"every_seconds": 5, "calendar": "none"}]}, "schedules.0.calendar"),
        ({"queue": "none"}, "queue"),
        ({"network": True}, "network"),
        ({"env": {"PUNCTUAL_X": ""}}, "env"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts"),
        ({"dependencies": [{"job": "00000000-0000-7000-8000-000000000000"}]}, "dependencies.0.job"),
        ({"script": None, "artifact": "00000000-0000-7000-8000-000000000000"}, "artifact"),
        ({"inputs": [{"path": "a", "artifact": "00000000-0000-7000-8000-000000000000"}]}, "inputs.0.artifact"),
        ({"requirements": {"disk_mb": 0}, "script": "x" * 1_048_000, "stdin": "y" * 1_048_000}, "requirements.disk_mb"),
        ({"unknown": 1}, "unknown"),
        ({"name": 5}, "name"),
    ],
)
def test_one_invalid_job_rejects_all(client: APIClient, change: dict[str, Any], field: str) -> None:
    refused = submit(client, [job_body(), job_body(), job_body(**change), job_body()])

    assert refused.status_code in (400, 403)
    assert [error["field"] for error in refused.json()["errors"]] == [f"jobs.2.{field}"]
    assert not Job.objects.exists()


def test_unplaceable_jobs_are_rejected(client: APIClient, owner: User) -> None:
    apart = [{"job": str(make_job(owner=owner).id)} for _ in range(2)]
    common = submit(client, [job_body(dependencies=apart[:1])] * 2).json()["results"]
    together = [{"job": each["id"]} for each in common]

    refused = submit(client, [job_body(dependencies=wanted) for wanted in (apart[:1], together, apart, together)])
    assert [error["field"] for error in refused.json()["errors"]] == ["jobs.2.dependencies"]
    assert Job.objects.count() == 4
    assert submit(client, [job_body(dependencies=together)] * 2).status_code == 201


def test_validation_errors_are_collected_and_bounded(client: APIClient) -> None:
    wrong = submit(client, [job_body(name=1), job_body(), job_body(priority=99, schedules=[{"cron": 5}])])
    fields = [error["field"] for error in wrong.json()["errors"]]
    assert fields == ["jobs.0.name", "jobs.2.schedules.0.cron", "jobs.2.priority"]
    many = submit(client, [job_body(name=1)] * 200)
    assert (many.status_code, len(many.json()["errors"])) == (400, 50)


@pytest.mark.parametrize("jobs", [[], {}, "x", None, [1], [job_body()] * (limits.MAX_BULK_JOBS + 1)], ids=str)
def test_invalid_job_list_is_rejected(client: APIClient, jobs: object) -> None:
    refused = submit(client, jobs)
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["field"].startswith("jobs")
    assert not Job.objects.exists()


def test_retry_with_idempotency_key_creates_nothing(client: APIClient) -> None:
    first, again = (submit(client, [job_body()] * 3, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first.content == again.content
    assert (Job.objects.count(), Artifact.objects.count()) == (3, 1)


def test_bulk_over_job_quota_is_rejected_as_a_whole(client: APIClient, owner: User, stranger: APIClient) -> None:
    OwnerQuota.objects.create(owner=owner, jobs=3, concurrent_executions=7, requests_per_minute=500)
    assert submit(client, [job_body(), job_body()]).status_code == 201
    refused = submit(client, [job_body(), job_body()])
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:punctual:quota")
    assert "You may have 3 jobs and have 2, and this would add 2" in refused.json()["detail"]
    assert Job.objects.count() == 2
    third = client.post(f"{API}/jobs", job_body(), format="json")
    assert third.status_code == 201
    assert client.post(f"{API}/jobs", job_body(), format="json").status_code == 403
    usage = client.get(f"{API}/usage").json()
    assert usage["jobs"] == {"used": 3, "quota": 3}
    assert usage["concurrent_executions"] == {"used": 0, "quota": 7}
    assert usage["requests_per_minute"] == {"quota": 500}
    assert client.delete(f"{API}/jobs/{third.json()['id']}").status_code < 300
    assert client.post(f"{API}/jobs", job_body(), format="json").status_code == 201
    assert stranger.get(f"{API}/usage").json()["jobs"] == {"used": 0, "quota": 0}
