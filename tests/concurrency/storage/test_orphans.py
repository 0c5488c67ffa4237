"""A new use of a hash wins over its deletion at any point of the sweep."""

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

from jobs.db.clock import database_now
from jobs.domain import limits
from jobs.domain.errors import InvalidInput
from jobs.domain.job_spec import JobSpec
from jobs.models import Artifact, Job
from jobs.models.ids import first_id
from jobs.storage import orphans, s3
from jobs.storage.artifact_deletion import collect_artifact
from jobs.storage.orphans import sweep_orphans
from tests.support.barriers import DEADLINE_SECONDS, at_once
from tests.support.factories import make_job, make_user
from tests.support.submitting import store_script, submit_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bucket", "queue")]

OLD = timedelta(seconds=2 * limits.ORPHAN_GRACE_SECONDS)
ROUNDS = 15
Result = TypeVar("Result")


@pytest.fixture
def queue(db: None) -> None:
    make_job()


def store_old_script(owner: User, text: str) -> UUID:
    """Store an artifact whose grace period has passed."""
    artifact = store_script(owner=owner, script=text)
    new_id = UUID(int=first_id(database_now() - OLD).int | secrets.randbits(60))
    Artifact.objects.filter(id=artifact.id).update(id=new_id, wanted_at=F("wanted_at") - OLD)
    return new_id


def sweep() -> None:
    sweep_orphans(retention=timedelta(days=90))


def stored(text: str) -> bool:
    return s3.read_artifact_size(hashlib.sha256(text.encode()).hexdigest()) == len(text)


def test_script_submitted_while_it_is_deleted_can_run() -> None:
    for _ in range(ROUNDS):
        owner, text = make_user(), f"echo {secrets.token_hex(8)}"
        store_old_script(owner, text)
        submit = partial(submit_job, owner=owner, spec=JobSpec(name="again", runtime="bash", script=text))
        calls: list[Callable[[], object]] = [submit, sweep, sweep]
        job, *_ = at_once(calls)
        assert isinstance(job, Job)
        assert job.current_version is not None
        artifact = Artifact.objects.get(owner=owner)
        assert job.current_version.artifact_id == artifact.id
        assert (artifact.doomed_at, artifact.verified_at is None) == (None, False)
        assert stored(text)


def test_artifact_used_while_it_is_deleted_is_complete_or_refused() -> None:
    outcomes = set()
    for number in range(ROUNDS):
        owner, text = make_user(), f"echo {secrets.token_hex(8)}"
        artifact_id = store_old_script(owner, text)
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


def test_storing_bytes_waits_for_their_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs, text = make_user(), make_user(), f"echo {secrets.token_hex(8)}"
    artifact_id = store_old_script(mine, text)
    orphans.mark_orphans(database_now())
    deleting, proceed = threading.Event(), threading.Event()
    delete = s3.delete_objects

    def delete_slowly(keys: Sequence[str]) -> None:
        deleting.set()
        assert proceed.wait(DEADLINE_SECONDS)
        delete(keys)

    monkeypatch.setattr(s3, "delete_objects", delete_slowly)
    with ThreadPoolExecutor(3) as pool:
        collected = pool.submit(in_thread, partial(collect_artifact, artifact_id))
        assert deleting.wait(DEADLINE_SECONDS)
        storing = [pool.submit(in_thread, partial(store_script, owner=owner, script=text)) for owner in (mine, theirs)]
        wait_for_lock_waiters(len(storing))
        assert not any(each.done() for each in storing)
        proceed.set()
        assert collected.result(DEADLINE_SECONDS)
        artifacts = [each.result(DEADLINE_SECONDS) for each in storing]
    assert stored(text)
    assert artifact_id not in {each.id for each in artifacts}
    assert Artifact.objects.filter(owner__in=(mine, theirs), verified_at__isnull=False, doomed_at=None).count() == 2


def test_artifact_in_use_by_a_transaction_is_not_marked() -> None:
    artifact_id = store_old_script(make_user(), f"echo {secrets.token_hex(8)}")
    with transaction.atomic():
        # As the foreign key of a job's version does.
        list(Artifact.objects.select_for_update(no_key=True).filter(id=artifact_id))
        with ThreadPoolExecutor(1) as pool:
            marked = pool.submit(in_thread, lambda: orphans.mark_orphans(database_now()))
            assert marked.result(DEADLINE_SECONDS) == 0
    assert orphans.mark_orphans(database_now()) == 1


def in_thread(call: Callable[[], Result]) -> Result:
    try:
        return call()
    finally:
        connection.close()


def wait_for_lock_waiters(count: int) -> None:
    """Wait until `count` sessions wait for an advisory lock."""
    deadline = threading.Event()
    for _ in range(DEADLINE_SECONDS * 100):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            if cursor.fetchone()[0] >= count:
                return
        deadline.wait(0.01)
    pytest.fail("no session waits for an advisory lock")
