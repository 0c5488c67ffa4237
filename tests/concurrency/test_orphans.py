"""Whoever uses a hash anew wins over its collection, at whatever moment of it they come."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import F

from jobs import conf, storage
from jobs.errors import InvalidInput
from jobs.models import Artifact, Job
from jobs.models.ids import first_id
from jobs.services import orphans
from jobs.services.artifact_deletion import collect_artifact
from jobs.services.artifacts import store_script
from jobs.services.commands import submit_job
from jobs.services.job_spec import JobSpec
from jobs.services.orphans import sweep_orphans
from jobs.services.schedules import database_now
from tests.concurrency.connections import DEADLINE_SECONDS, at_once
from tests.factories import make_job, make_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bucket", "queue")]

OLD = timedelta(seconds=2 * conf.ORPHAN_GRACE_SECONDS)
ROUNDS = 15
Answer = TypeVar("Answer")


@pytest.fixture
def queue(db: None) -> None:
    make_job()


def forgotten(owner: User, text: str) -> UUID:
    """An artifact that nobody has wanted for long."""
    artifact = store_script(owner=owner, script=text)
    made = UUID(int=first_id(database_now() - OLD).int | secrets.randbits(60))
    Artifact.objects.filter(id=artifact.id).update(id=made, wanted_at=F("wanted_at") - OLD)
    return made


def sweep() -> None:
    sweep_orphans(retention=timedelta(days=90))


def stored(text: str) -> bool:
    return storage.artifact_size(hashlib.sha256(text.encode()).hexdigest()) == len(text)


def test_a_script_that_is_submitted_while_it_is_collected_can_be_run() -> None:
    for _ in range(ROUNDS):
        owner, text = make_user(), f"echo {secrets.token_hex(8)}"
        forgotten(owner, text)
        submit = partial(submit_job, owner=owner, spec=JobSpec(name="again", runtime="bash", script=text))
        calls: list[Callable[[], object]] = [submit, sweep, sweep]
        job, *_ = at_once(calls)
        assert isinstance(job, Job)
        assert job.current_version is not None
        artifact = Artifact.objects.get(owner=owner)
        assert job.current_version.artifact_id == artifact.id
        assert (artifact.doomed_at, artifact.verified_at is None) == (None, False)
        assert stored(text)


def test_an_artifact_that_is_used_while_it_is_collected_is_whole_or_refused() -> None:
    outcomes = set()
    for number in range(ROUNDS):
        owner, text = make_user(), f"echo {secrets.token_hex(8)}"
        artifact_id = forgotten(owner, text)
        orphans.mark_orphans(database_now())
        spec = JobSpec(name="again", runtime="bash", artifact=artifact_id)

        def submit(owner: User = owner, spec: JobSpec = spec) -> bool:
            try:
                submit_job(owner=owner, spec=spec)
            except InvalidInput:
                return False
            return True

        calls: Sequence[Callable[[], bool]] = [submit, partial(collect_artifact, artifact_id)]
        if number == 0:
            submitted, collected = calls[0](), calls[1]()
        elif number == 1:
            collected, submitted = calls[1](), calls[0]()
        else:
            submitted, collected = at_once(calls)
        outcomes.add(submitted)
        assert submitted != collected
        assert Artifact.objects.filter(owner=owner, id=artifact_id).exists() == submitted
        assert stored(text) == submitted
    assert outcomes == {True, False}


def test_while_the_bytes_are_being_deleted_nobody_stores_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs, text = make_user(), make_user(), f"echo {secrets.token_hex(8)}"
    artifact_id = forgotten(mine, text)
    orphans.mark_orphans(database_now())
    deleting, go_on = threading.Event(), threading.Event()
    delete = storage.delete_objects

    def delete_slowly(keys: Sequence[str]) -> None:
        deleting.set()
        assert go_on.wait(DEADLINE_SECONDS)
        delete(keys)

    monkeypatch.setattr(storage, "delete_objects", delete_slowly)
    with ThreadPoolExecutor(3) as pool:
        collected = pool.submit(alone, partial(collect_artifact, artifact_id))
        assert deleting.wait(DEADLINE_SECONDS)
        storing = [pool.submit(alone, partial(store_script, owner=owner, script=text)) for owner in (mine, theirs)]
        wait_until_somebody_waits(len(storing))
        assert not any(each.done() for each in storing)
        go_on.set()
        assert collected.result(DEADLINE_SECONDS)
        artifacts = [each.result(DEADLINE_SECONDS) for each in storing]
    assert stored(text)
    assert artifact_id not in {each.id for each in artifacts}
    assert Artifact.objects.filter(owner__in=(mine, theirs), verified_at__isnull=False, doomed_at=None).count() == 2


def test_one_that_is_just_being_used_is_not_marked() -> None:
    artifact_id = forgotten(make_user(), f"echo {secrets.token_hex(8)}")
    with transaction.atomic():
        # As the foreign key of a job's version does it.
        list(Artifact.objects.select_for_update(no_key=True).filter(id=artifact_id))
        with ThreadPoolExecutor(1) as pool:
            marked = pool.submit(alone, lambda: orphans.mark_orphans(database_now()))
            assert marked.result(DEADLINE_SECONDS) == 0
    assert orphans.mark_orphans(database_now()) == 1


def alone(call: Callable[[], Answer]) -> Answer:
    try:
        return call()
    finally:
        connection.close()


def wait_until_somebody_waits(count: int) -> None:
    """In the database, for an advisory lock that another holds."""
    deadline = threading.Event()
    for _ in range(DEADLINE_SECONDS * 100):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if cursor.fetchone()[0] >= count:
                return
        deadline.wait(0.01)
    pytest.fail("nobody waits")
