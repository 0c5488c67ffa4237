"""Fast rendering gives the same values as DRF, under the names of the schema."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from drf_spectacular.generators import SchemaGenerator
from rest_framework.serializers import BaseSerializer

from jobs.api.framework.fast_serializer import FastSerializerMixin
from jobs.api.resources.definitions.jobs import list_visible_jobs
from jobs.api.resources.executions.executions import list_visible_executions
from jobs.api.resources.representations import ExecutionOutput, JobOutput
from jobs.models import Artifact, Calendar, Execution, Job, Team
from tests.support.factories import claim_on, make_execution, make_job, make_schedule, make_worker

pytestmark = pytest.mark.django_db
# With and without microseconds, and in a zone other than UTC.
AT = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Paris"))


@pytest.fixture
def jobs(owner: User) -> list[Job]:
    """Create one job with only required fields and one with all fields."""
    bare = make_job(owner=owner, name="bare", max_concurrency=None)
    full = make_job(
        owner=owner, name="full ж", args=["a", "1"], env={"K": "v"}, capabilities=["gpu"], resources={"licence": 2},
        retry={"max_attempts": 3, "delays": [1.5]}, deadline_seconds=7.5,
    )  # fmt: skip
    team = Team.objects.create(name="team")
    Job.objects.filter(id=full.id).update(state="paused", paused_at=AT, paused_note="why", team=team)
    version, artifact = full.current_version, Artifact.objects.get(owner=owner)
    assert version is not None
    version.inputs.create(path="b.csv", artifact=artifact)
    version.inputs.create(path="a.csv", artifact=artifact)
    version.inputs.create(path=None, artifact=artifact)
    version.secrets.create(name="token", env="TOKEN")
    version.secrets.create(name="key", path="key.pem")
    full.dependencies.create(upstream=bare, condition="failure")
    calendar = Calendar.objects.create(owner=owner, name="holidays", dates=[date(2026, 12, 25)])
    for kind, expression in (
        ("cron", "0 3 * * 1"),
        ("every", "90.5"),
        ("delay", "60"),
        ("at", "2030-01-01T00:00:00+00:00"),
        ("solar", "sunrise 48.85,2.35"),
    ):
        make_schedule(job=full, kind=kind, expression=expression, timezone="Europe/Paris", starts_at=AT)
    make_schedule(job=full, ends_at=AT, excluded_dates=[date(2026, 1, 1)], max_count=5, catch_up_window_seconds=9)
    make_schedule(job=full, calendar=calendar, excluded_dates=[date(2026, 12, 25)], own_excluded_dates=[])
    make_schedule(job=full, quarantined_at=AT, quarantine_error="no", next_instant=None)
    make_schedule(job=bare, deleted_at=AT, next_instant=None)
    return [bare, full]


@pytest.fixture
def executions(jobs: list[Job]) -> list[Execution]:
    waiting, running, failed = (make_execution(job=jobs[0]) for _ in range(3))
    claim_on(make_worker(), running)
    stored_progress = {"attempt": 1, "percent": 12.5, "message": "half", "at": "2026-01-01T00:00:00.000001+00:00"}
    Execution.objects.filter(id=running.id).update(progress=stored_progress, deadline_at=AT + timedelta(microseconds=1))
    Execution.objects.filter(id=failed.id).update(
        state="failed", ended_at=AT, reason="exit", exit_code=3, result={"a": [1, None]}, dead_letter="open",
        retry_of=waiting.id,
    )  # fmt: skip
    return [waiting, running, failed]


def _by_drf(monkeypatch: pytest.MonkeyPatch, serializer: BaseSerializer[Any]) -> Any:
    with monkeypatch.context() as patch:
        patch.delattr(FastSerializerMixin, "to_representation")
        return serializer.data


def test_job_output_equals_drf(owner: User, jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(list_visible_jobs(owner).order_by("id"))
    by_drf = _by_drf(monkeypatch, JobOutput(rows, many=True))
    assert JobOutput(rows, many=True).data == by_drf
    bare, full = by_drf
    assert (bare["schedules"], len(full["schedules"])) == ([], 8)
    assert full["paused_at"] == "2026-03-29T00:30:00Z"
    assert [each["path"] for each in full["inputs"]] == ["a.csv", "b.csv"]
    assert full["stdin_artifact"]
    assert all(any(row[name] not in (None, [], {}) for row in by_drf) for name in bare if name != "deleted_at")


def test_execution_output_equals_drf(owner: User, executions: list[Execution], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(list_visible_executions(owner))
    assert len(rows) == 3
    # Times from the database are in UTC; others may not be.
    rows[0].fired_at = AT
    by_drf = _by_drf(monkeypatch, ExecutionOutput(rows, many=True))
    assert ExecutionOutput(rows, many=True).data == by_drf
    assert by_drf[0]["fired_at"] == "2026-03-29T00:30:00Z"


def test_output_has_fields_of_schema(owner: User, executions: list[Execution]) -> None:
    schemas = SchemaGenerator().get_schema(public=True)["components"]["schemas"]  # type: ignore[no-untyped-call]
    for name, serializer in (
        ("JobOutput", JobOutput(list_visible_jobs(owner), many=True).data),
        ("ExecutionOutput", ExecutionOutput(list_visible_executions(owner), many=True).data),
    ):
        assert all(set(row) == set(schemas[name]["properties"]) for row in serializer), name


def test_page_takes_as_many_queries_as_a_row(owner: User, jobs: list[Job], executions: list[Execution]) -> None:
    def statements(limit: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert len(JobOutput(list_visible_jobs(owner).order_by("id")[:limit], many=True).data) == limit
            assert len(ExecutionOutput(list_visible_executions(owner)[:limit], many=True).data) == limit
        return len(queries)

    # Jobs: the user's teams, the jobs and their schedules; executions: the teams and the rows.
    assert statements(1) == statements(2) == 5
