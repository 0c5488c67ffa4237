"""Deleting a team while its jobs are locked or more are shared with it."""

from __future__ import annotations

from functools import partial

import pytest

from jobs.access.teams import create_team, delete_team
from jobs.db.locks import lock_job
from jobs.definitions.editing import edit_job
from jobs.domain.errors import InvalidInput
from jobs.domain.job_edit import JobEdit
from jobs.models import Job, Team
from tests.support.barriers import beside
from tests.support.factories import make_job, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def team() -> Team:
    return create_team(name="payments", members=[make_user(username="ann").username])


def test_deleting_a_team_does_not_deadlock_with_locks_in_id_order(team: Team) -> None:
    first, second = make_job(), make_job()
    Job.objects.update(team=team)
    # The last written row comes last in a sequential scan.
    Job.objects.filter(id=first.id).update(name="moved")
    beside(partial(lock_job, first.id), partial(delete_team, team.id), then=partial(lock_job, second.id))
    assert not Job.objects.exclude(team=None).exists()
    assert not Team.objects.exists()


def test_job_is_shared_before_the_team_is_deleted_or_not_at_all(team: Team) -> None:
    job = make_job(owner=make_user(username="bob"))
    team.members.add(job.owner)
    share = partial(edit_job, job.id, JobEdit(team="payments"))
    beside(share, partial(delete_team, team.id))
    job.refresh_from_db()
    assert (job.team_id, Team.objects.count()) == (None, 0)
    with pytest.raises(InvalidInput):
        share()
