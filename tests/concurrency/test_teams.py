"""A team is deleted while others have its jobs, or share more with it."""

from __future__ import annotations

from functools import partial

import pytest

from jobs.errors import InvalidInput
from jobs.models import Job, Team
from jobs.services.editing import edit_job
from jobs.services.job_edit import JobEdit
from jobs.services.locking import lock_job
from jobs.services.teams import create_team, delete_team
from tests.concurrency.connections import beside
from tests.factories import make_job, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def team() -> Team:
    return create_team(name="payments", members=[make_user(username="ann").username])


def test_a_beat_that_takes_its_jobs_one_by_one_goes_on(team: Team) -> None:
    first, second = make_job(), make_job()
    Job.objects.update(team=team)
    # What was written last is met last by who reads the table as it lies.
    Job.objects.filter(id=first.id).update(name="moved")
    beside(partial(lock_job, first.id), partial(delete_team, team.id), then=partial(lock_job, second.id))
    assert not Job.objects.exclude(team=None).exists()
    assert not Team.objects.exists()


def test_a_job_is_shared_before_the_team_is_deleted_or_not_at_all(team: Team) -> None:
    job = make_job(owner=make_user(username="bob"))
    team.members.add(job.owner)
    share = partial(edit_job, job.id, JobEdit(team="payments"))
    beside(share, partial(delete_team, team.id))
    job.refresh_from_db()
    assert (job.team_id, Team.objects.count()) == (None, 0)
    with pytest.raises(InvalidInput):
        share()
