"""Edits of what runs after what keep a graph that can run."""

from __future__ import annotations

import pytest

from jobs.errors import InvalidInput
from jobs.models import Dependency, Job
from jobs.recurrence import Kind
from jobs.services import commands
from jobs.services.editing import edit_job
from jobs.services.job_edit import JobEdit, ScheduleEdit
from jobs.services.job_spec import DependencySpec
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def chain(length: int) -> list[Job]:
    """Each runs after the one before."""
    first = make_job(name="job-0")
    found = [first]
    for n in range(1, length):
        found.append(make_job(owner=first.owner, name=f"job-{n}"))
        Dependency.objects.create(job=found[-1], upstream=found[-2])
    return found


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
def test_a_circle_is_refused_and_told(length: int) -> None:
    jobs = chain(length)
    before = edges()
    with pytest.raises(InvalidInput) as caught:
        depend(jobs[0], jobs[-1])
    assert edges() == before
    if length > 1:
        assert "job-0" in caught.value.message
        assert "circle" in caught.value.message


def test_what_descends_from_it_must_still_share_a_root() -> None:
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


def test_a_job_that_loses_its_schedules_must_share_a_root_with_others() -> None:
    one = make_job(name="one")
    two, both = make_job(owner=one.owner, name="two"), make_job(owner=one.owner, name="both")
    daily = ScheduleEdit(kind=Kind.CRON, expression="@daily")
    edit_job(both.id, JobEdit(schedules=[daily], dependencies=[DependencySpec(one.id), DependencySpec(two.id)]))
    with pytest.raises(InvalidInput, match="both"):
        edit_job(both.id, JobEdit(schedules=[]))
    assert both.schedules.count() == 1
    edit_job(both.id, JobEdit(schedules=[], dependencies=[DependencySpec(one.id)]))
    assert both.schedules.count() == 0


def test_upstreams_must_be_jobs_of_the_owner_that_run() -> None:
    job, stranger = make_job(), make_job()
    gone, cancelled = make_job(owner=job.owner), make_job(owner=job.owner)
    commands.delete_job(gone.id, by="test")
    commands.cancel_job(cancelled.id, by="test")
    for upstream in (stranger, gone, cancelled, job):
        with pytest.raises(InvalidInput) as caught:
            depend(job, upstream)
        assert caught.value.field == "dependencies.0.job"
