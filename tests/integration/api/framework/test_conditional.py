"""ETag, If-None-Match and If-Match: 304 for unchanged representations, 412 for stale edits."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.db.clock import database_now
from jobs.definitions import lifecycle
from jobs.domain.job_spec import ScheduleSpec
from jobs.domain.recurrence import Kind
from jobs.models import Calendar, Execution, Job, Queue
from jobs.scheduling import calendars, schedules
from jobs.scheduling.schedules import prepare_schedule, store_schedules
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_job, make_worker, run_on

pytestmark = pytest.mark.django_db


def make_calendar(owner: User) -> Calendar:
    return calendars.create_calendar(owner=owner, name="holidays", dates=[])


def paths(owner: User) -> list[str]:
    execution = make_execution(job=make_job(owner=owner))
    return [
        f"jobs/{execution.job_id}",
        f"executions/{execution.id}",
        f"calendars/{make_calendar(owner).id}",
        f"queues/{Queue.objects.get(name='default').id}",
    ]


def read(client: APIClient, path: str, known: str | None = None) -> Any:
    return client.get(f"{API}/{path}", headers={} if known is None else {"If-None-Match": known})


def test_if_none_match_gets_304(client: APIClient, owner: User) -> None:
    for path in paths(owner):
        tag = read(client, path)["ETag"]
        assert tag.startswith('"')
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            same = read(client, path, known)
            assert (same.status_code, same.content, same["ETag"]) == (304, b"", tag)
        for known in ('"other"', "nonsense"):
            assert read(client, path, known).status_code == 200


def test_etag_changes_with_every_field(client: APIClient, owner: User) -> None:
    job, execution, calendar, queue = paths(owner)
    tags = {path: read(client, path)["ETag"] for path in (job, execution, calendar, queue)}

    run_on(make_worker(), Execution.objects.get())
    Calendar.objects.update(name="other")
    Queue.objects.update(paused=True)

    for path, tag in tags.items():
        assert read(client, path, tag).status_code == 200, path
    assert read(client, job).json()["status"] == "running"


EDITS: list[tuple[str, str, Any]] = [
    ("patch", "jobs/{job}", {"name": "second"}),
    ("delete", "jobs/{job}", None),
    ("put", "jobs/{job}/cancel", None),
    ("post", "jobs/{job}/pause", {"note": "second"}),
    ("post", "jobs/{job}/resume", None),
    ("patch", "calendars/{calendar}", {"name": "second"}),
    ("delete", "calendars/{calendar}", None),
]


@pytest.mark.parametrize(("method", "address", "body"), EDITS)
def test_if_match_rejects_stale_edit(client: APIClient, owner: User, method: str, address: str, body: Any) -> None:
    job, calendar = make_job(owner=owner), make_calendar(owner)
    path = address.format(job=job.id, calendar=calendar.id)
    kind = "/".join(path.split("/")[:2])
    tag = read(client, kind)["ETag"]

    def edit(known: str) -> Any:
        return getattr(client, method)(f"{API}/{path}", body, format="json", headers={"If-Match": known})

    assert client.patch(f"{API}/{kind}", {"name": "first"}, format="json").status_code == 200
    before = read(client, kind).content
    for stale in (tag, '"other"', "nonsense"):
        refused = edit(stale)
        assert (refused.status_code, refused["Content-Type"]) == (412, "application/problem+json")
        assert "read it again" in refused.json()["detail"]
    assert read(client, kind).content == before

    assert edit(f'"other", {read(client, kind)["ETag"]}').status_code in (200, 204)


def test_edit_returns_etag_for_next_edit(client: APIClient, owner: User) -> None:
    for path in (f"jobs/{make_job(owner=owner).id}", f"calendars/{make_calendar(owner).id}"):
        tag = read(client, path)["ETag"]
        for name in ("a", "b"):
            edited = client.patch(f"{API}/{path}", {"name": name}, format="json", headers={"If-Match": tag})
            assert edited.status_code == 200
            tag = edited["ETag"]
        assert read(client, path)["ETag"] == tag
        assert client.patch(f"{API}/{path}", {"name": "c"}, format="json", headers={"If-Match": "*"}).status_code == 200


def test_firing_of_one_schedule_is_no_edit(client: APIClient, owner: User) -> None:
    """An update moves a row within its table, so an unordered query would return it last."""
    job = make_job(owner=owner)
    rows = [prepare_schedule(0, ScheduleSpec(Kind.EVERY, seconds), database_now()) for seconds in ("60", "3600")]
    schedules.create_schedules(job, rows, database_now())
    path = f"jobs/{job.id}"
    tag = read(client, path)["ETag"]

    rows[0].settled_count += 1
    schedules.arm(rows[0], database_now())
    rows[0].save()

    assert [each["id"] for each in read(client, path).json()["schedules"]] == [str(row.id) for row in rows]
    edited = client.patch(f"{API}/{path}", {"priority": 7}, format="json", headers={"If-Match": tag})
    assert edited.status_code == 200, edited.content


def test_run_and_firing_are_no_edits(client: APIClient, owner: User) -> None:
    job = make_job(owner=owner)
    schedule = prepare_schedule(0, ScheduleSpec(Kind.EVERY, "3600"), database_now())
    schedule.job = job
    store_schedules([schedule], database_now())
    path = f"jobs/{job.id}"
    tag = read(client, path)["ETag"]

    run_on(make_worker(), make_execution(job=job))
    schedule.settled_count += 1
    schedule.save()
    assert read(client, path)["ETag"] != tag
    edited = client.patch(f"{API}/{path}", {"priority": 7}, format="json", headers={"If-Match": tag})
    assert edited.status_code == 200, edited.content

    tag = edited["ETag"]
    lifecycle.pause_job(job.id, note="by hand")
    assert client.delete(f"{API}/{path}", headers={"If-Match": tag}).status_code == 412
    assert Job.objects.get().deleted_at is None
