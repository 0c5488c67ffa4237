"""Concurrent submissions and placements do not exceed an owner's quota."""

from __future__ import annotations

from functools import partial

import pytest
from django.contrib.auth.models import User

from jobs.definitions.submission import prepare_jobs, store_jobs
from jobs.dispatch.placement import place_ready_executions
from jobs.domain.errors import JobQuotaExceeded
from jobs.domain.job_spec import JobSpec
from jobs.models import Execution, Job, OwnerQuota, Queue
from tests.support.barriers import at_once, beside
from tests.support.factories import make_execution, make_job, make_user, make_worker
from tests.support.submitting import store_script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bucket")]


def submit(owner: User, count: int) -> bool:
    Queue.objects.get_or_create(name="default")
    program = store_script(owner=owner, script="true")
    prepared = prepare_jobs(owner=owner, specs=[JobSpec(name="j", runtime="bash", artifact=program.id)] * count)
    try:
        store_jobs(prepared)
    except JobQuotaExceeded:
        return False
    return True


def test_concurrent_submissions_do_not_exceed_the_job_quota() -> None:
    owner = make_user()
    OwnerQuota.objects.create(owner=owner, jobs=5)
    answers = at_once([partial(submit, owner, 2)] * 4)
    assert sum(answers) == 2
    assert Job.objects.filter(owner=owner).count() == 4
    assert beside(partial(submit, owner, 1), partial(submit, owner, 1)) is False
    assert Job.objects.filter(owner=owner).count() == 5


def test_concurrent_placement_in_several_pools_respects_the_concurrency_quota() -> None:
    owner, pools = make_user(), [f"pool-{number}" for number in range(4)]
    OwnerQuota.objects.create(owner=owner, concurrent_executions=3)
    for pool in pools:
        make_worker(pool=pool)
        queue = Queue.objects.create(name=pool, pool=pool)
        for _ in range(3):
            make_execution(job=make_job(owner=owner, queue=queue))
    first, others = pools[:1], pools[1:]
    meanwhile = beside(
        partial(place_ready_executions, limit=1, pools=first), partial(place_ready_executions, pools=others)
    )
    assert (meanwhile.placed, meanwhile.contended) == (0, True), "what is not committed yet cannot be counted"
    at_once([partial(place_ready_executions, pools=[pool]) for pool in pools])
    assert 1 < Execution.objects.filter(state="queued").count() <= 3
    place_ready_executions()
    assert Execution.objects.filter(state="queued").count() == 3
