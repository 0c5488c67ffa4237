"""Owners store, use and delete the same bytes during sweeps: bytes that a job names exist, and no others."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from uuid import UUID

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from pytest_django import Settings

from jobs.definitions.editing import edit_job
from jobs.definitions.lifecycle import cancel_job
from jobs.domain import limits
from jobs.domain.errors import (
    ArtifactNotUploaded,
    Conflict,
    InvalidInput,
    NotFound,
    PunctualError,
    QuotaExceeded,
    StorageUnavailable,
)
from jobs.domain.job_edit import JobEdit
from jobs.domain.job_spec import JobSpec
from jobs.domain.states import Reason, State
from jobs.domain.worker_protocol import RunReport
from jobs.execution import dependents
from jobs.execution.attempts import finish_attempt
from jobs.models import Artifact, Dependency, Execution, Job, JobState, JobVersion
from jobs.storage import s3
from jobs.storage.artifact_deletion import delete_artifact
from jobs.storage.artifacts import announce_artifact, complete_artifact, lock_hashes, pin_artifacts, store_scripts
from jobs.storage.orphans import sweep_orphans
from jobs.storage.quota import MEGABYTE, read_usage
from tests.support.barriers import at_once, beside
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.support.submitting import store_script, submit_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bucket", "queue")]

OLD = timedelta(seconds=2 * limits.ORPHAN_GRACE_SECONDS)
ACTIONS = 12
SUCCESS = RunReport(Reason.EXIT, exit_code=0)
# Errors that an owner may get from an action that races with its undoing.
EXPECTED_ERRORS = (ArtifactNotUploaded, Conflict, InvalidInput, NotFound)


@pytest.fixture
def queue(db: None) -> None:
    make_job()


class Owner:
    """One of several owners of the same bytes."""

    def __init__(self, text: str, seed: int) -> None:
        self.user = make_user()
        self.text = text
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self._random = random.Random(seed)  # noqa: S311 - chooses the next action

    def act(self) -> None:
        """Take actions in random order."""
        kinds: list[Callable[[], object]] = [self.submit, self.submit, self.upload, self.cancel, self.delete]
        for _ in range(ACTIONS):
            with suppress(*EXPECTED_ERRORS):
                self._random.choice(kinds)()

    def submit(self) -> None:
        submit_job(owner=self.user, spec=JobSpec(name="job", runtime="bash", script=self.text))

    def upload(self) -> None:
        announced = announce_artifact(owner=self.user, sha256=self.sha256, size=len(self.text))
        if announced.upload is not None:
            httpx.put(announced.upload.url, content=self.text.encode(), headers=announced.upload.headers)
            complete_artifact(announced.artifact)
        submit_job(owner=self.user, spec=JobSpec(name="job", runtime="bash", artifact=announced.artifact.id))

    def cancel(self) -> None:
        """Cancel all jobs, so that their artifact may be deleted."""
        for job in self.user.jobs.filter(state=JobState.ACTIVE):
            cancel_job(job.id, by="owner")

    def delete(self) -> None:
        self.cancel()
        for artifact_id in Artifact.objects.filter(owner=self.user, deleted_at=None).values_list("id", flat=True):
            delete_artifact(artifact_id)


def sweep(sha256: str) -> None:
    for _ in range(ACTIONS):
        # End the grace period of existing artifacts; new ones are skipped by the age of their id.
        Artifact.objects.filter(sha256=sha256).update(wanted_at=F("wanted_at") - OLD)
        sweep_orphans(retention=timedelta(days=90))


def stored(sha256: str) -> bool:
    try:
        return hashlib.sha256(b"".join(s3.read_artifact(sha256))).hexdigest() == sha256
    except ArtifactNotUploaded:
        return False


def test_racing_owners_never_lose_bytes_of_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.storage.orphans._GRACE", timedelta(0))
    for seed in range(3):
        text = f"echo {secrets.token_hex(16)}"
        owners = [Owner(text, 10 * seed + number) for number in range(2)]
        sha256 = owners[0].sha256
        calls: list[Callable[[], None]] = [owner.act for owner in owners for _ in range(2)]
        calls.append(partial(sweep, sha256))
        at_once(calls)
        named = JobVersion.objects.filter(artifact__sha256=sha256, current_of__state=JobState.ACTIVE)
        assert all(each.artifact.verified_at and not each.artifact.deleted_at for each in named)
        if named:
            assert stored(sha256)
        for owner in owners:
            owner.delete()
        sweep_orphans(retention=timedelta(days=90))
        assert not Artifact.objects.filter(sha256=sha256, deleted_at=None).exists()
        assert s3.read_artifact_size(sha256) is None, "no row names these bytes"
        assert not [each for page in s3.list_objects(s3.UPLOADS_PREFIX, before="uploads/~") for each in page]


@pytest.mark.parametrize("history", [False, True])
def test_bytes_deleted_while_they_are_stored_leave_no_orphan(monkeypatch: pytest.MonkeyPatch, history: bool) -> None:
    owner, put = Owner(f"echo {secrets.token_hex(8)}", 0), s3.put_artifact
    if history:
        owner.submit()
        owner.delete()

    def put_and_delete(sha256: str, data: bytes) -> None:
        put(sha256, data)
        at_once([owner.delete])
        put(sha256, data)

    monkeypatch.setattr(s3, "put_artifact", put_and_delete)
    with pytest.raises(Conflict, match="deleted while"):
        owner.submit()
    assert s3.read_artifact_size(owner.sha256) is None
    assert not Artifact.objects.filter(owner=owner.user, verified_at__isnull=False).exists()
    monkeypatch.setattr(s3, "put_artifact", put)
    owner.submit()
    assert stored(owner.sha256)


def test_bytes_stored_by_another_owner_meanwhile_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, put = Owner(f"echo {secrets.token_hex(8)}", 0), s3.put_artifact
    theirs = Owner(mine.text, 1)

    def put_and_delete(sha256: str, data: bytes) -> None:
        monkeypatch.setattr(s3, "put_artifact", put)
        put(sha256, data)
        at_once([theirs.submit, mine.delete])

    monkeypatch.setattr(s3, "put_artifact", put_and_delete)
    with pytest.raises(Conflict, match="deleted while"):
        mine.submit()
    assert stored(mine.sha256)


def test_several_hashes_are_locked_in_a_fixed_order() -> None:
    text = secrets.token_hex(8)
    hashes = {hashlib.sha256(each.encode()).hexdigest(): each for each in (f"echo 1 {text}", f"echo 2 {text}")}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sha256 FROM unnest(%s::text[]) AS sha256"
            " ORDER BY hashtextextended('punctual.artifact.' || sha256, 0)",
            [list(hashes)],
        )
        first, last = (row[0] for row in cursor)
    user = make_user()

    stored_artifacts = beside(
        partial(lock_hashes, [first]),
        partial(store_scripts, owner=user, scripts=[hashes[last], hashes[first]]),
        then=partial(lock_hashes, [last]),
    )
    assert {artifact.sha256 for artifact in stored_artifacts.values() if artifact.verified_at} == set(hashes)


@pytest.mark.parametrize("history", [False, True])
def test_job_submitted_while_its_artifact_is_deleted_is_refused(history: bool) -> None:
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    if history:
        owner.submit()
        owner.cancel()
    artifact = store_script(owner=owner.user, script=owner.text)

    def submit() -> str:
        try:
            owner.submit()
        except PunctualError as error:
            return str(error)
        return "submitted"

    answer = beside(partial(delete_artifact, artifact.id), submit)
    assert "deleted a moment ago" in answer
    assert not owner.user.jobs.filter(state=JobState.ACTIVE).exists()


def test_artifact_of_a_job_being_submitted_cannot_be_deleted() -> None:
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    artifact = store_script(owner=owner.user, script=owner.text)

    def delete() -> str:
        try:
            delete_artifact(artifact.id)
        except Conflict as error:
            return str(error)
        return "deleted"

    assert "still use" in beside(owner.submit, delete)
    assert stored(owner.sha256)


def delete_unanswered(monkeypatch: pytest.MonkeyPatch, *, history: bool) -> tuple[Owner, Artifact]:
    """Delete an artifact without a response; `history`: a cancelled job still names it."""
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    artifact = store_script(owner=owner.user, script=owner.text)
    if history:
        owner.submit()
        owner.cancel()
    with monkeypatch.context() as patch:
        lose_answers(patch)
        with pytest.raises(StorageUnavailable):
            delete_artifact(artifact.id)
    return owner, artifact


@pytest.mark.parametrize("history", [False, True])
def test_artifact_can_be_stored_again_after_an_unanswered_deletion(
    monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    owner, artifact = delete_unanswered(monkeypatch, history=history)
    with pytest.raises(InvalidInput, match="not uploaded"):
        submit_job(owner=owner.user, spec=JobSpec(name="job", runtime="bash", artifact=artifact.id))
    owner.submit()
    assert stored(owner.sha256)


@pytest.mark.parametrize("history", [False, True])
def test_sweep_finishes_an_unanswered_deletion(monkeypatch: pytest.MonkeyPatch, history: bool) -> None:
    owner, artifact = delete_unanswered(monkeypatch, history=history)
    assert sweep_orphans(retention=timedelta(days=90)).artifacts == 1
    assert not Artifact.objects.filter(id=artifact.id, deleted_at=None).exists()
    owner.submit()
    assert stored(owner.sha256)


def test_artifact_being_deleted_cannot_be_pinned() -> None:
    artifact = store_script(owner=make_user(), script=f"echo {secrets.token_hex(8)}")
    pin_artifacts([artifact.id])
    Artifact.objects.filter(id=artifact.id).update(doomed_at=Now())
    with pytest.raises(Conflict, match="deleted a moment ago"):
        pin_artifacts([artifact.id])


def lose_answers(patch: pytest.MonkeyPatch) -> None:
    """Drop the responses of deletions that the object store has done."""
    delete = s3.delete_objects

    def delete_without_answer(keys: Sequence[str]) -> None:
        delete(keys)
        raise StorageUnavailable

    patch.setattr(s3, "delete_objects", delete_without_answer)


def chain(owner: Owner) -> tuple[Job, Job]:
    """Create three jobs in a chain and return the first and the last."""
    artifact = store_script(owner=owner.user, script=owner.text)
    first, between = make_job(owner=owner.user), make_job(owner=owner.user)
    last = make_job(owner=owner.user, artifact=artifact)
    Dependency.objects.create(job=between, upstream=first, condition="success")
    Dependency.objects.create(job=last, upstream=between, condition="success")
    return first, last


def test_artifact_of_an_execution_being_created_cannot_be_deleted() -> None:
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    first, last = chain(owner)
    finish = partial(finish_attempt, run_on(make_worker(), make_execution(job=first)), SUCCESS)

    def edit_and_delete() -> str:
        edit_job(last.id, JobEdit(script=f"echo {secrets.token_hex(8)}"))
        try:
            delete_artifact(Artifact.objects.get(sha256=owner.sha256).id)
        except Conflict as error:
            return str(error)
        return "deleted"

    assert "still use" in beside(finish, edit_and_delete)
    assert Execution.objects.get(job=last).version.artifact.sha256 == owner.sha256
    assert stored(owner.sha256)


def test_execution_created_after_its_artifact_was_deleted_runs_the_new_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    first, last = chain(owner)
    lock_jobs, deleted = dependents.share_lock_jobs, list[UUID]()

    def edit_and_delete() -> None:
        edit_job(last.id, JobEdit(script=f"echo {secrets.token_hex(8)}"))
        deleted.append(Artifact.objects.get(sha256=owner.sha256).id)
        delete_artifact(deleted[0])

    def lock_after_the_edit(job_ids: set[UUID]) -> set[UUID]:
        """Edit just before the lock: after it, the edit would wait, as the test above shows."""
        at_once([edit_and_delete])
        return lock_jobs(job_ids)

    fence = run_on(make_worker(), make_execution(job=first))
    monkeypatch.setattr(dependents, "share_lock_jobs", lock_after_the_edit)
    finish_attempt(fence, SUCCESS)
    (execution,) = Execution.objects.filter(job=last)
    assert execution.state == State.BLOCKED
    assert deleted
    assert execution.version.artifact_id not in deleted
    assert stored(execution.version.artifact.sha256)


def announce(owner: User, size: int) -> UUID | None:
    try:
        return announce_artifact(owner=owner, sha256=secrets.token_hex(32), size=size).artifact.id
    except QuotaExceeded:
        return None


def test_concurrent_announcements_do_not_exceed_the_storage_quota(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    size = MEGABYTE * 2 // 3
    for _ in range(5):
        owner = make_user()
        answers = at_once([partial(announce, owner, size)] * 4)
        assert sum(answer is not None for answer in answers) == 1
        assert read_usage(owner.pk).used_bytes == size
    owner = make_user()
    assert beside(partial(announce, owner, size), partial(announce, owner, size)) is None
