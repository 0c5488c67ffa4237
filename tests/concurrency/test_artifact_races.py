"""Owners store, use and delete the same bytes while they are collected: what a job names is there, and nothing else."""

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

from jobs import conf, storage
from jobs.errors import (
    ArtifactNotUploaded,
    Conflict,
    InvalidInput,
    NotFound,
    PunctualError,
    QuotaExceeded,
    StorageUnavailable,
)
from jobs.models import Artifact, Dependency, Execution, Job, JobState, JobVersion
from jobs.protocol import Report
from jobs.services import transitions
from jobs.services.artifact_deletion import delete_artifact
from jobs.services.artifacts import (
    announce_artifact,
    complete_artifact,
    hold_artifacts,
    lock_hash,
    store_script,
    store_scripts,
)
from jobs.services.attempts import finish_attempt
from jobs.services.commands import cancel_job, submit_job
from jobs.services.editing import edit_job
from jobs.services.job_edit import JobEdit
from jobs.services.job_spec import JobSpec
from jobs.services.orphans import sweep_orphans
from jobs.services.storage_quota import MEGABYTE, read_use
from jobs.services.transitions import NewExecution
from jobs.states import Reason, State
from tests.concurrency.connections import at_once, beside
from tests.factories import make_execution, make_job, make_user, make_worker, run_on

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("bucket", "queue")]

OLD = timedelta(seconds=2 * conf.ORPHAN_GRACE_SECONDS)
TURNS = 12
SUCCESS = Report(Reason.EXIT, exit_code=0)
# What an owner may be told who does one thing while it is undone elsewhere.
TOLD = (ArtifactNotUploaded, Conflict, InvalidInput, NotFound)


@pytest.fixture
def queue(db: None) -> None:
    make_job()


class Owner:
    """One of those who have the same bytes."""

    def __init__(self, text: str, seed: int) -> None:
        self.user = make_user()
        self.text = text
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self._random = random.Random(seed)  # noqa: S311 - which turn comes next

    def act(self) -> None:
        """All kinds of turns in an order of its own."""
        kinds: list[Callable[[], object]] = [self.submit, self.submit, self.upload, self.cancel, self.delete]
        for _ in range(TURNS):
            with suppress(*TOLD):
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
        """So that what it ran may be deleted."""
        for job in self.user.jobs.filter(state=JobState.ACTIVE):
            cancel_job(job.id, by="owner")

    def delete(self) -> None:
        self.cancel()
        for artifact_id in Artifact.objects.filter(owner=self.user, deleted_at=None).values_list("id", flat=True):
            delete_artifact(artifact_id)


def sweep(sha256: str) -> None:
    for _ in range(TURNS):
        # As if nobody had wanted them for long; what is new was made a moment ago, and is spared by its id.
        Artifact.objects.filter(sha256=sha256).update(wanted_at=F("wanted_at") - OLD)
        sweep_orphans(retention=timedelta(days=90))


def stored(sha256: str) -> bool:
    try:
        return hashlib.sha256(b"".join(storage.read_artifact(sha256))).hexdigest() == sha256
    except ArtifactNotUploaded:
        return False


def test_owners_who_store_use_and_delete_the_same_bytes_never_lose_what_a_job_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobs.services.orphans._GRACE", timedelta(0))
    for seed in range(3):
        text = f"echo {secrets.token_hex(16)}"
        owners = [Owner(text, 10 * seed + number) for number in range(2)]
        sha256 = owners[0].sha256
        acts: list[Callable[[], None]] = [owner.act for owner in owners for _ in range(2)]
        acts.append(partial(sweep, sha256))
        at_once(acts)
        named = JobVersion.objects.filter(artifact__sha256=sha256, current_of__state=JobState.ACTIVE)
        assert all(each.artifact.verified_at and not each.artifact.deleted_at for each in named)
        if named:
            assert stored(sha256)
        for owner in owners:
            owner.delete()
        sweep_orphans(retention=timedelta(days=90))
        assert not Artifact.objects.filter(sha256=sha256, deleted_at=None).exists()
        assert storage.artifact_size(sha256) is None, "nobody names them"
        assert not [each for page in storage.list_objects(storage.UPLOADS, before="uploads/~") for each in page]


@pytest.mark.parametrize("history", [False, True])
def test_what_is_deleted_while_it_is_stored_is_not_left_behind(monkeypatch: pytest.MonkeyPatch, history: bool) -> None:
    owner, put = Owner(f"echo {secrets.token_hex(8)}", 0), storage.put_artifact
    if history:
        owner.submit()
        owner.delete()

    def put_and_delete(sha256: str, data: bytes) -> None:
        put(sha256, data)
        at_once([owner.delete])
        put(sha256, data)

    monkeypatch.setattr(storage, "put_artifact", put_and_delete)
    with pytest.raises(Conflict, match="deleted while"):
        owner.submit()
    assert storage.artifact_size(owner.sha256) is None
    assert not Artifact.objects.filter(owner=owner.user, verified_at__isnull=False).exists()
    monkeypatch.setattr(storage, "put_artifact", put)
    owner.submit()
    assert stored(owner.sha256)


def test_what_another_stored_meanwhile_is_not_taken_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, put = Owner(f"echo {secrets.token_hex(8)}", 0), storage.put_artifact
    theirs = Owner(mine.text, 1)

    def put_and_delete(sha256: str, data: bytes) -> None:
        monkeypatch.setattr(storage, "put_artifact", put)
        put(sha256, data)
        at_once([theirs.submit, mine.delete])

    monkeypatch.setattr(storage, "put_artifact", put_and_delete)
    with pytest.raises(Conflict, match="deleted while"):
        mine.submit()
    assert stored(mine.sha256)


def test_whoever_locks_several_hashes_does_so_in_one_order() -> None:
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

    known = beside(
        partial(lock_hash, first),
        partial(store_scripts, owner=user, scripts=[hashes[last], hashes[first]]),
        then=partial(lock_hash, last),
    )
    assert {artifact.sha256 for artifact in known.values() if artifact.verified_at} == set(hashes)


@pytest.mark.parametrize("history", [False, True])
def test_a_job_that_is_submitted_while_its_program_is_deleted_is_refused(history: bool) -> None:
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


def test_a_program_that_is_deleted_while_its_job_is_submitted_stays() -> None:
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
    """`history`: a job that is over still names it."""
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
def test_a_program_whose_deletion_was_not_answered_is_stored_anew(
    monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    owner, artifact = delete_unanswered(monkeypatch, history=history)
    with pytest.raises(InvalidInput, match="not uploaded"):
        submit_job(owner=owner.user, spec=JobSpec(name="job", runtime="bash", artifact=artifact.id))
    owner.submit()
    assert stored(owner.sha256)


@pytest.mark.parametrize("history", [False, True])
def test_a_deletion_that_was_not_answered_is_finished_by_the_sweep(
    monkeypatch: pytest.MonkeyPatch, history: bool
) -> None:
    owner, artifact = delete_unanswered(monkeypatch, history=history)
    assert sweep_orphans(retention=timedelta(days=90)).artifacts == 1
    assert not Artifact.objects.filter(id=artifact.id, deleted_at=None).exists()
    owner.submit()
    assert stored(owner.sha256)


def test_what_is_being_deleted_is_given_to_no_job() -> None:
    artifact = store_script(owner=make_user(), script=f"echo {secrets.token_hex(8)}")
    hold_artifacts([artifact.id])
    Artifact.objects.filter(id=artifact.id).update(doomed_at=Now())
    with pytest.raises(Conflict, match="deleted a moment ago"):
        hold_artifacts([artifact.id])


def lose_answers(patch: pytest.MonkeyPatch) -> None:
    """Of deletions: the object store does what it is asked for."""
    delete = storage.delete_objects

    def delete_without_answer(keys: Sequence[str]) -> None:
        delete(keys)
        raise StorageUnavailable

    patch.setattr(storage, "delete_objects", delete_without_answer)


def followed(owner: Owner) -> tuple[Job, Job]:
    """The first and the last of three jobs in a row; when the first ends, the last has to wait for the one between."""
    artifact = store_script(owner=owner.user, script=owner.text)
    first, between = make_job(owner=owner.user), make_job(owner=owner.user)
    last = make_job(owner=owner.user, artifact=artifact)
    Dependency.objects.create(job=between, upstream=first, condition="success")
    Dependency.objects.create(job=last, upstream=between, condition="success")
    return first, last


def test_a_program_stays_that_an_execution_is_to_run_which_is_just_being_created() -> None:
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    first, last = followed(owner)
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


def test_an_execution_whose_program_is_deleted_while_it_is_created_runs_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner(f"echo {secrets.token_hex(8)}", 0)
    first, last = followed(owner)
    create, deleted = transitions.create_executions, list[UUID]()

    def edit_and_delete() -> None:
        edit_job(last.id, JobEdit(script=f"echo {secrets.token_hex(8)}"))
        deleted.append(Artifact.objects.get(sha256=owner.sha256).id)
        delete_artifact(deleted[0])

    def create_slowly(new: Sequence[NewExecution]) -> list[UUID]:
        ids = create(new)
        if not deleted:
            at_once([edit_and_delete])
        return ids

    hold = run_on(make_worker(), make_execution(job=first))
    monkeypatch.setattr(transitions, "create_executions", create_slowly)
    finish_attempt(hold, SUCCESS)
    (execution,) = Execution.objects.filter(job=last)
    assert execution.state == State.BLOCKED
    assert execution.version.artifact_id not in deleted
    assert stored(execution.version.artifact.sha256)


def announce(owner: User, size: int) -> UUID | None:
    try:
        return announce_artifact(owner=owner, sha256=secrets.token_hex(32), size=size).artifact.id
    except QuotaExceeded:
        return None


def test_two_that_fit_one_by_one_do_not_both_slip_under_the_quota(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    size = MEGABYTE * 2 // 3
    for _ in range(5):
        owner = make_user()
        answers = at_once([partial(announce, owner, size)] * 4)
        assert sum(answer is not None for answer in answers) == 1
        assert read_use(owner.pk).used_bytes == size
    owner = make_user()
    assert beside(partial(announce, owner, size), partial(announce, owner, size)) is None
