"""Quotas of jobs and concurrent executions fence, and do not delay other owners."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.access.quotas import check_job_quota
from jobs.db.wakeups import WakeupListener
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport
from jobs.execution.attempts import finish_attempt
from jobs.models import Execution, OwnerQuota, Queue
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db


def limited(limit: int) -> User:
    owner = make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=limit)
    return owner


def executions(owner: User, count: int, **version: Any) -> list[UUID]:
    return [make_execution(job=make_job(owner=owner, **version)).id for _ in range(count)]


def active(owner: User) -> int:
    return Execution.objects.filter(job__owner=owner, state__in=("queued", "claimed", "running")).count()


def test_concurrency_quota_spans_jobs_queues_and_pools() -> None:
    owner, other = limited(3), make_user()
    for pool in ("default", "second"):
        make_worker(pool=pool)
        queue = Queue.objects.create(name=f"of-{pool}", pool=pool)
        executions(owner, 4, queue=queue)
        executions(other, 4, queue=queue)
    while place_ready_executions().placed:
        assert active(owner) <= 3
    assert (active(owner), active(other)) == (3, 8)


def test_executions_over_quota_do_not_hide_others() -> None:
    """Not even in a queue whose concurrency limit is below the number of the owner's executions at its head."""
    make_worker()
    queue = Queue.objects.create(name="narrow", max_concurrency=3)
    owner, other = limited(1), make_user()
    executions(owner, 5, queue=queue)
    executions(other, 5, queue=queue)
    assert place_ready_executions().placed == 3
    assert (active(owner), active(other)) == (1, 2)
    full = place_ready_executions()
    assert (full.placed, full.held, full.more) == (0, 0, False)


def test_finished_execution_or_larger_quota_frees_capacity() -> None:
    worker, owner = make_worker(), limited(1)
    fence = run_on(worker, make_execution(job=make_job(owner=owner)))
    executions(owner, 3)
    assert place_ready_executions().placed == 0
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))
    assert place_ready_executions().placed == 1
    OwnerQuota.objects.update(concurrent_executions=2)
    assert place_ready_executions().placed == 1
    OwnerQuota.objects.update(concurrent_executions=0)
    assert place_ready_executions().placed == 1


def test_unplaceable_executions_do_not_block_their_owner() -> None:
    """Passes that follow at once use a free slot, however many unplaceable executions precede."""
    worker, owner = make_worker(resources={"gpu": 1}), limited(2)
    run_on(worker, make_execution(job=make_job(resources={"gpu": 1})))
    fences = [run_on(worker, make_execution(job=make_job(owner=owner))) for _ in range(2)]
    executions(owner, 40, resources={"gpu": 1})
    (fits,) = executions(owner, 1)
    assert place_ready_executions().placed == 0
    finish_attempt(fences[0], RunReport(Reason.EXIT, exit_code=0))
    passes = 0
    while not (result := place_ready_executions()).placed:
        assert result.more
        passes += 1
        assert passes < 40
    assert Execution.objects.get(id=fits).state == "queued"


def test_default_concurrency_applies_to_owners_without_own_quota(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_CONCURRENCY = 2
    make_worker()
    owner, wide, free = make_user(), limited(3), limited(0)
    for each in (owner, wide, free):
        executions(each, 4)
    while place_ready_executions().placed:
        pass
    assert [active(each) for each in (owner, wide, free)] == [2, 3, 4]


def test_smaller_quota_does_not_affect_active_executions() -> None:
    make_worker()
    owner = limited(2)
    executions(owner, 3)
    assert place_ready_executions().placed == 2
    OwnerQuota.objects.update(concurrent_executions=1)
    assert place_ready_executions().placed == 0
    assert active(owner) == 2


def test_placement_without_limits_runs_no_extra_queries() -> None:
    make_worker()
    owner = make_user()
    OwnerQuota.objects.create(owner=owner, storage_mb=5)
    executions(owner, 3)
    with CaptureQueriesContext(connection) as without:
        assert place_ready_executions().placed == 3
    assert not [query for query in without if "punctual.place.limited_owners" in query["sql"]]
    executions(limited(9), 3)
    with CaptureQueriesContext(connection) as with_one:
        assert place_ready_executions().placed == 3
    assert len(with_one) == len(without) + 3


def test_without_a_limit_jobs_are_not_counted(settings: Settings) -> None:
    owner = make_user()
    with CaptureQueriesContext(connection) as queries:
        check_job_quota(owner.pk, 10**6)
    assert len(queries) == 1
    settings.PUNCTUAL_OWNER_JOBS = 5
    OwnerQuota.objects.create(owner=owner, jobs=0)
    check_job_quota(owner.pk, 6)


@pytest.mark.django_db(transaction=True)
def test_quota_changed_in_the_admin_is_shown_with_its_usage_and_wakes_beat(settings: Settings) -> None:
    owner, admin = limited(1), Client()
    run_on(make_worker(), make_execution(job=make_job(owner=owner)))
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    page = admin.get("/admin/jobs/ownerquota/").content.decode()
    for column, number in (("concurrent_executions", 1), ("active", 1), ("jobs_used", 1)):
        assert f'field-{column}">{number}<' in page
    listener = WakeupListener(settings.PUNCTUAL_REDIS_URL)
    try:
        assert eventually(lambda: listener.wait(0.01) or listener.connected_seconds > 0)
        assert eventually(lambda: not listener.wait(0.05)), "drain earlier wake-ups"
        change = f"/admin/jobs/ownerquota/{OwnerQuota.objects.get().pk}/change/"
        assert admin.post(change, {"owner": owner.pk, "concurrent_executions": 2}).status_code == 302
        assert listener.wait(5)
    finally:
        listener.close()
        listener._redis.close()
    assert OwnerQuota.objects.get().concurrent_executions == 2
