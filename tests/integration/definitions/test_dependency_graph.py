"""Edits of dependencies keep a graph in which every job can run."""

from __future__ import annotations

import pytest

from jobs.definitions import lifecycle
from jobs.definitions.editing import edit_job
from jobs.domain.errors import InvalidInput
from jobs.domain.job_edit import JobEdit, ScheduleEdit
from jobs.domain.job_spec import DependencySpec
from jobs.domain.recurrence import Kind
from jobs.models import Dependency, Job
from tests.support.factories import make_job

pytestmark = pytest.mark.django_db


def chain(length: int) -> list[Job]:
    """Create jobs that each depend on the one before."""
    first = make_job(name="job-0")
    jobs = [first]
    for n in range(1, length):
        jobs.append(make_job(owner=first.owner, name=f"job-{n}"))
        Dependency.objects.create(job=jobs[-1], upstream=jobs[-2])
    return jobs


def depend(job: Job, *upstreams: Job) -> None:
    edit_job(job.id, JobEdit(dependencies=[DependencySpec(upstream.id) for upstream in upstreams]))


def edges() -> set[tuple[str, str]]:
    return set(Dependency.objects.values_list("job__name", "upstream__name"))


def test_dependencies_are_replaced() -> None:
    one, _, three = chain(3)
    depend(three, one)
    assert edges() == {("job-1", "job-0"), ("job-2", "job-0")}
    depend(three)
    assert edges() == {("job-1", "job-0")}


@pytest.mark.parametrize("length", [1, 2, 5, 30])
def test_cycle_is_refused_and_named(length: int) -> None:
    jobs = chain(length)
    before = edges()
    with pytest.raises(InvalidInput) as caught:
        depend(jobs[0], jobs[-1])
    assert edges() == before
    if length > 1:
        assert "job-0" in caught.value.message
        assert "cycle" in caught.value.message


def test_descendants_must_still_share_a_root() -> None:
    root, left = chain(2)
    right, last, other = (make_job(owner=root.owner, name=name) for name in ("right", "last", "other"))
    depend(right, root)
    depend(last, left, right)
    before = edges()
    with pytest.raises(InvalidInput, match="last"):
        depend(left, other)
    assert edges() == before
    with pytest.raises(InvalidInput, match="common first job"):
        depend(other, root, make_job(owner=root.owner))


def test_job_that_loses_its_schedules_must_have_a_common_root() -> None:
    one = make_job(name="one")
    two, both = make_job(owner=one.owner, name="two"), make_job(owner=one.owner, name="both")
    daily = ScheduleEdit(kind=Kind.CRON, expression="@daily")
    edit_job(both.id, JobEdit(schedules=[daily], dependencies=[DependencySpec(one.id), DependencySpec(two.id)]))
    with pytest.raises(InvalidInput, match="both"):
        edit_job(both.id, JobEdit(schedules=[]))
    assert both.schedules.count() == 1
    edit_job(both.id, JobEdit(schedules=[], dependencies=[DependencySpec(one.id)]))
    assert both.schedules.count() == 0


def test_upstreams_must_be_active_jobs_of_the_owner() -> None:
    job, stranger = make_job(), make_job()
    gone, cancelled = make_job(owner=job.owner), make_job(owner=job.owner)
    lifecycle.delete_job(gone.id, by="test")
    lifecycle.cancel_job(cancelled.id, by="test")
    for upstream in (stranger, gone, cancelled, job):
        with pytest.raises(InvalidInput) as caught:
            depend(job, upstream)
        assert caught.value.field == "dependencies.0.job"
