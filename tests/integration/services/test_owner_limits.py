"""How many jobs and executions an owner may have: no more are stored or placed, and nobody else waits for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.models import Execution, OwnerQuota, Queue
from jobs.protocol import Report
from jobs.services.attempts import finish_attempt
from jobs.services.owner_limits import check_room_for_jobs
from jobs.services.placement import place_ready_executions
from jobs.states import Reason
from jobs.wakeups import WakeListener
from tests.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.waiting import eventually

pytestmark = pytest.mark.django_db


def limited(most: int) -> User:
    owner = make_user()
    OwnerQuota.objects.create(owner=owner, concurrent_executions=most)
    return owner


def executions(owner: User, count: int, **version: Any) -> list[UUID]:
    return [make_execution(job=make_job(owner=owner, **version)).id for _ in range(count)]


def active(owner: User) -> int:
    return Execution.objects.filter(job__owner=owner, state__in=("queued", "claimed", "running")).count()


def test_no_more_of_an_owner_is_placed_over_all_jobs_queues_and_pools() -> None:
    owner, other = limited(3), make_user()
    for pool in ("default", "second"):
        make_worker(pool=pool)
        queue = Queue.objects.create(name=f"of-{pool}", pool=pool)
        executions(owner, 4, queue=queue)
        executions(other, 4, queue=queue)
    while place_ready_executions().placed:
        assert active(owner) <= 3
    assert (active(owner), active(other)) == (3, 8)


def test_what_waits_for_its_owner_hides_nothing() -> None:
    """Not even in a queue whose own limit leaves room for fewer than the owner has waiting in front."""
    make_worker()
    queue = Queue.objects.create(name="narrow", max_concurrency=3)
    owner, other = limited(1), make_user()
    executions(owner, 5, queue=queue)
    executions(other, 5, queue=queue)
    first = place_ready_executions()
    assert (first.placed, first.more, active(owner)) == (1, True, 1)
    assert place_ready_executions().placed == 2
    assert (active(owner), active(other)) == (1, 2)
    full = place_ready_executions()
    assert (full.placed, full.held, full.more) == (0, 0, False)


def test_an_end_and_a_larger_quota_make_room() -> None:
    worker, owner = make_worker(), limited(1)
    hold = run_on(worker, make_execution(job=make_job(owner=owner)))
    executions(owner, 3)
    assert place_ready_executions().placed == 0
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    assert place_ready_executions().placed == 1
    OwnerQuota.objects.update(concurrent_executions=2)
    assert place_ready_executions().placed == 1
    OwnerQuota.objects.update(concurrent_executions=0)
    assert place_ready_executions().placed == 1


def test_what_is_set_for_everybody_is_for_those_without_a_quota_of_their_own(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_CONCURRENCY = 2
    make_worker()
    owner, wide, free = make_user(), limited(3), limited(0)
    for each in (owner, wide, free):
        executions(each, 4)
    while place_ready_executions().placed:
        pass
    assert [active(each) for each in (owner, wide, free)] == [2, 3, 4]


def test_a_smaller_quota_takes_nothing_away() -> None:
    make_worker()
    owner = limited(2)
    executions(owner, 3)
    assert place_ready_executions().placed == 2
    OwnerQuota.objects.update(concurrent_executions=1)
    assert place_ready_executions().placed == 0
    assert active(owner) == 2


def test_without_a_limit_placing_asks_nothing_more() -> None:
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
    with CaptureQueriesContext(connection) as asked:
        check_room_for_jobs(owner.pk, 10**6)
    assert len(asked) == 1
    settings.PUNCTUAL_OWNER_JOBS = 5
    OwnerQuota.objects.create(owner=owner, jobs=0)
    check_room_for_jobs(owner.pk, 6)


@pytest.mark.django_db(transaction=True)
def test_a_quota_that_is_changed_in_the_admin_is_shown_beside_its_use_and_wakes_beat(settings: Settings) -> None:
    owner, admin = limited(1), Client()
    run_on(make_worker(), make_execution(job=make_job(owner=owner)))
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    page = admin.get("/admin/jobs/ownerquota/").content.decode()
    for column, number in (("concurrent_executions", 1), ("active", 1), ("jobs_used", 1)):
        assert f'field-{column}">{number}<' in page
    listener = WakeListener(settings.PUNCTUAL_REDIS_URL)
    try:
        assert eventually(lambda: listener.wait(0.01) or listener.hearing_seconds > 0)
        assert eventually(lambda: not listener.wait(0.05)), "what came before"
        change = f"/admin/jobs/ownerquota/{OwnerQuota.objects.get().pk}/change/"
        assert admin.post(change, {"owner": owner.pk, "concurrent_executions": 2}).status_code == 302
        assert listener.wait(5)
    finally:
        listener.close()
        listener._redis.close()
    assert OwnerQuota.objects.get().concurrent_executions == 2
