"""A secret that is deleted and granted concurrently never leaves a job with a missing secret."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.access.secrets import create_secret, delete_secret
from jobs.definitions.editing import edit_job
from jobs.domain.errors import Conflict, InvalidInput, PunctualError
from jobs.domain.job_edit import JobEdit
from jobs.domain.job_spec import JobSpec, SecretSpec
from jobs.models import Job, Secret
from tests.support.barriers import beside
from tests.support.factories import make_job
from tests.support.submitting import submit_job

pytestmark = pytest.mark.django_db(transaction=True)
GRANTS = [SecretSpec("db", env="DB")]


def refused(call: Callable[[], object]) -> type[PunctualError] | None:
    try:
        call()
    except PunctualError as error:
        return type(error)
    return None


@pytest.mark.parametrize("way", ["submit", "edit"])
def test_secret_is_either_deleted_or_granted(way: str, bucket: None) -> None:
    job = make_job()

    def grant() -> None:
        if way == "edit":
            edit_job(job.id, JobEdit(secrets=GRANTS))
        else:
            submit_job(owner=job.owner, spec=JobSpec("job", "bash", script="true", secrets=GRANTS))

    secret = create_secret(owner=job.owner, name="db", value="hunter2")
    assert beside(lambda: delete_secret(secret.id), lambda: refused(grant)) is InvalidInput
    assert not Job.objects.filter(current_version__secrets__name="db").exists()

    secret = create_secret(owner=job.owner, name="db", value="hunter2")
    assert beside(grant, lambda: refused(lambda: delete_secret(secret.id))) is Conflict
    assert Secret.objects.filter(id=secret.id).exists()
