"""Secrets that are deleted, or given to jobs, at the same time: no job is left with one that is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.errors import Conflict, InvalidInput, PunctualError
from jobs.models import Job, Secret
from jobs.services.commands import submit_job
from jobs.services.editing import edit_job
from jobs.services.job_edit import JobEdit
from jobs.services.job_spec import JobSpec, SecretSpec
from jobs.services.secrets import create_secret, delete_secret
from tests.concurrency.connections import beside
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)
GRANTS = [SecretSpec("db", env="DB")]


def refused(call: Callable[[], object]) -> type[PunctualError] | None:
    try:
        call()
    except PunctualError as error:
        return type(error)
    return None


@pytest.mark.parametrize("way", ["submit", "edit"])
def test_a_secret_is_deleted_or_given_but_not_both(way: str, bucket: None) -> None:
    job = make_job()

    def give() -> None:
        if way == "edit":
            edit_job(job.id, JobEdit(secrets=GRANTS))
        else:
            submit_job(owner=job.owner, spec=JobSpec("job", "bash", script="true", secrets=GRANTS))

    kept = create_secret(owner=job.owner, name="db", value="hunter2")
    assert beside(lambda: delete_secret(kept.id), lambda: refused(give)) is InvalidInput
    assert not Job.objects.filter(current_version__secrets__name="db").exists()

    kept = create_secret(owner=job.owner, name="db", value="hunter2")
    assert beside(give, lambda: refused(lambda: delete_secret(kept.id))) is Conflict
    assert Secret.objects.filter(id=kept.id).exists()
