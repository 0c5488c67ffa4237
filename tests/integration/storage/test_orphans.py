"""The orphan sweep deletes unreferenced objects and rows, and nothing that is used again in time."""

from __future__ import annotations

import hashlib
import io
import logging
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db.models import F
from pytest_django import Settings
from uuid_utils import compat

from jobs.domain import limits
from jobs.domain.errors import NotFound
from jobs.models import Artifact, Attempt, Execution, JobVersion, VersionInput
from jobs.storage import orphans, s3
from jobs.storage.artifacts import announce_artifact, complete_artifact, retain_artifact
from jobs.storage.orphans import SweepResult, sweep_orphans
from jobs.tasks import sweep_orphans as sweep_orphans_task
from tests.support.factories import make_execution, make_job, make_output, make_user, make_worker
from tests.support.submitting import store_script

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket", "_empty_store")]

RETENTION = timedelta(days=90)
GRACE = timedelta(seconds=limits.ORPHAN_GRACE_SECONDS)


@pytest.fixture
def _empty_store(bucket: None) -> None:
    """Delete objects that other tests left."""
    for prefix in (s3.UPLOADS_PREFIX, s3.OUTPUTS_PREFIX, s3.LOG_PACKS_PREFIX):
        for page in s3.list_objects(prefix, before="~"):
            s3.delete_objects([each.key for each in page])


@pytest.fixture
def set_endpoint(settings: Settings) -> Iterator[Callable[[str], None]]:
    """Change the endpoint of the object store."""

    def drop_client() -> None:
        s3._client().close()
        s3._client.cache_clear()

    def change(url: str) -> None:
        drop_client()
        settings.PUNCTUAL_S3_ENDPOINT_URL = url

    yield change
    drop_client()


def script() -> str:
    return f"echo {secrets.token_hex(16)}"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def age(artifact: Artifact, by: timedelta = GRACE * 2) -> UUID:
    """Move the artifact's id, creation and last use into the past."""
    new_id = id_of(datetime.now(UTC) - by)
    Artifact.objects.filter(id=artifact.id).update(
        id=new_id, created_at=F("created_at") - by, wanted_at=F("wanted_at") - by
    )
    return new_id


def id_of(at: datetime) -> UUID:
    identifier: UUID = compat.uuid7(nanoseconds=int(at.timestamp() * 1_000_000_000))
    return identifier


def stored(text: str) -> bool:
    return s3.read_artifact_size(sha(text)) is not None


def sweep(**options: Any) -> SweepResult:
    return sweep_orphans(retention=RETENTION, **options)


def test_unreferenced_artifact_is_deleted_after_its_grace_period() -> None:
    text = script()
    artifact = store_script(owner=make_user(), script=text)
    assert sweep() == SweepResult(artifacts=0, uploads=0, outputs=0, log_packs=0, finished=True)
    age(artifact)
    assert sweep().artifacts == 1
    assert not Artifact.objects.exists()
    assert not stored(text)
    assert sweep().artifacts == 0


def test_artifact_of_a_job_is_kept() -> None:
    owner, text = make_user(), script()
    artifact_id = age(store_script(owner=owner, script=text))
    job = make_job(owner=owner)
    JobVersion.objects.filter(job=job).update(artifact_id=artifact_id)
    assert sweep().artifacts == 0
    assert stored(text)


@pytest.mark.parametrize("path", ["data/a.csv", None])
def test_artifact_that_is_an_input_of_a_version_is_kept(path: str | None) -> None:
    owner, text = make_user(), script()
    artifact_id = age(store_script(owner=owner, script=text))
    version = JobVersion.objects.get(job=make_job(owner=owner))
    VersionInput.objects.create(version=version, path=path, artifact_id=artifact_id)
    assert sweep().artifacts == 0
    # Marked before the version endpoint stored: the deletion checks again.
    Artifact.objects.filter(id=artifact_id).update(doomed_at=datetime.now(UTC))
    assert sweep().artifacts == 0
    assert stored(text)
    assert Artifact.objects.get(id=artifact_id).doomed_at is None


def test_grace_period_exceeds_the_lifetime_of_presigned_urls() -> None:
    assert 2 * max(limits.UPLOAD_URL_SECONDS, limits.DOWNLOAD_URL_SECONDS) < limits.ORPHAN_GRACE_SECONDS
    # Artifacts of versions stay as long as the version.
    assert limits.MAX_DOWNLOAD_URL_SECONDS < limits.ORPHAN_GRACE_SECONDS


def test_bytes_shared_by_owners_are_deleted_with_the_last_row() -> None:
    text = script()
    mine, theirs = (store_script(owner=make_user(), script=text) for _ in range(2))
    age(mine)
    assert sweep().artifacts == 1
    assert stored(text)
    assert Artifact.objects.get() == theirs
    age(theirs)
    sweep()
    assert not stored(text)


def upload(owner: User, data: bytes) -> Artifact:
    announced = announce_artifact(owner=owner, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    assert announced.upload is not None
    sent = httpx.put(announced.upload.url, content=data, headers=announced.upload.headers, timeout=10)
    assert sent.status_code == 200
    return announced.artifact


def uploads() -> list[str]:
    return [each.key for page in s3.list_objects(s3.UPLOADS_PREFIX, before="~") for each in page]


def test_uncompleted_upload_is_deleted_with_its_row() -> None:
    artifact = upload(make_user(), secrets.token_bytes(20))
    assert sweep().artifacts == 0
    assert uploads() == [s3.upload_key(artifact.id)]
    Artifact.objects.update(wanted_at=F("wanted_at") - 2 * GRACE)
    # The sweep skips rows by the age of their id, which is a second here.
    assert orphans.mark_orphans(datetime.now(UTC) + 2 * GRACE) == 1
    assert sweep().artifacts == 1
    assert uploads() == []
    assert not Artifact.objects.exists()
    with pytest.raises(NotFound):
        complete_artifact(artifact)


def test_announcing_again_restarts_the_grace_period() -> None:
    owner, data = make_user(), secrets.token_bytes(20)
    announced = announce_artifact(owner=owner, sha256=hashlib.sha256(data).hexdigest(), size=20)
    age(announced.artifact)
    upload(owner, data)
    assert sweep().artifacts == 0
    assert complete_artifact(Artifact.objects.get()).verified_at is not None


def test_upload_repeated_after_completion_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    old = id_of(datetime.now(UTC) - 2 * GRACE)
    data = secrets.token_bytes(20)
    with httpx.Client() as client:
        url, headers = s3.presign_upload(s3.upload_key(old), hashlib.sha256(data).hexdigest(), 20)
        assert client.put(url, content=data, headers=headers).status_code == 200
    assert sweep().uploads == 0, "it may still be on its way"
    monkeypatch.setattr(orphans, "_GRACE", timedelta(0))
    waiting = Artifact.objects.create(id=old, owner=make_user(), sha256="a" * 64, size=1)
    assert orphans._find_orphaned_uploads(next(s3.list_objects(s3.UPLOADS_PREFIX, before="~")), datetime.now(UTC)) == []
    waiting.delete()
    assert sweep().uploads == 1
    assert uploads() == []


def test_upload_repeated_after_deletion_is_deleted() -> None:
    artifact = upload(make_user(), secrets.token_bytes(20))
    page, later = next(s3.list_objects(s3.UPLOADS_PREFIX, before="~")), datetime.now(UTC) + 2 * GRACE
    assert orphans._find_orphaned_uploads(page, later) == [], "its row may still be completed"
    # As for an artifact whose versions are only history.
    Artifact.objects.filter(id=artifact.id).update(deleted_at=datetime.now(UTC))
    assert orphans._find_orphaned_uploads(page, later) == [s3.upload_key(artifact.id)]


def doomed(text: str, owner: User) -> UUID:
    artifact_id = age(store_script(owner=owner, script=text))
    assert orphans.mark_orphans(datetime.now(UTC)) == 1
    return artifact_id


@pytest.mark.parametrize("bytes_gone", [False, True], ids=["before deleting bytes", "after deleting bytes"])
def test_next_sweep_finishes_an_interrupted_one(bytes_gone: bool) -> None:
    text = script()
    doomed(text, make_user())
    if bytes_gone:
        s3.delete_objects([s3.artifact_key(sha(text))])
    assert sweep().artifacts == 1
    assert not stored(text)
    assert not Artifact.objects.exists()


@pytest.mark.parametrize("bytes_gone", [False, True], ids=["before deleting bytes", "after deleting bytes"])
def test_marked_script_that_is_stored_again_is_kept(bytes_gone: bool) -> None:
    owner, text = make_user(), script()
    artifact_id = doomed(text, owner)
    if bytes_gone:
        s3.delete_objects([s3.artifact_key(sha(text))])
    again = store_script(owner=owner, script=text)
    assert (again.id, again.doomed_at) == (artifact_id, None)
    assert again.verified_at is not None
    assert sweep().artifacts == 0
    assert stored(text)


@pytest.mark.parametrize("bytes_gone", [False, True], ids=["before deleting bytes", "after deleting bytes"])
def test_marked_artifact_that_is_used_again_is_kept_or_needs_an_upload(bytes_gone: bool) -> None:
    owner, text = make_user(), script()
    artifact_id = doomed(text, owner)
    if bytes_gone:
        s3.delete_objects([s3.artifact_key(sha(text))])
    used = retain_artifact(owner=owner, artifact_id=artifact_id)
    assert used is not None
    assert (used.verified_at is None) == bytes_gone
    assert sweep().artifacts == 0
    announced = announce_artifact(owner=owner, sha256=sha(text), size=len(text))
    assert (announced.upload is not None) == bytes_gone


def test_artifact_of_another_owner_cannot_be_used() -> None:
    artifact = store_script(owner=make_user(), script=script())
    assert retain_artifact(owner=make_user(), artifact_id=artifact.id) is None
    assert retain_artifact(owner=make_user(), artifact_id=None) is None


def test_artifact_that_got_a_job_after_it_was_marked_is_kept() -> None:
    owner, text = make_user(), script()
    artifact_id = doomed(text, owner)
    JobVersion.objects.filter(job=make_job(owner=owner)).update(artifact_id=artifact_id)
    assert sweep().artifacts == 0
    assert Artifact.objects.get(id=artifact_id).doomed_at is None
    assert stored(text)


def test_unavailable_object_store_loses_nothing(
    set_endpoint: Callable[[str], None], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    text, endpoint = script(), str(settings.PUNCTUAL_S3_ENDPOINT_URL)
    age(store_script(owner=make_user(), script=text))
    set_endpoint("http://127.0.0.1:1")
    with caplog.at_level(logging.WARNING):
        result = sweep()
    assert (result.artifacts, result.finished) == (0, False)
    assert "Deleting orphans waits for the object store" in caplog.text
    assert Artifact.objects.get().doomed_at is not None
    set_endpoint(endpoint)
    assert stored(text)
    assert sweep().artifacts == 1
    assert not stored(text)


def output(execution_id: UUID, attempt: int = 1, *, data: bytes | None = None) -> str:
    data = data or secrets.token_bytes(9)
    digest = hashlib.sha256(data).hexdigest()
    key = s3.output_key(execution_id, attempt, digest)
    s3.put_output(key, digest, len(data), io.BytesIO(data))
    return key


def outputs() -> set[str]:
    return {each.key for page in s3.list_objects(s3.OUTPUTS_PREFIX, before="~") for each in page}


def old_execution(days: float, *, state: str = "succeeded") -> UUID:
    at = datetime.now(UTC) - timedelta(days=days)
    row, new_id = make_execution(), id_of(at)
    values: dict[str, Any] = {} if state == "ready" else {"state": state, "ended_at": at}
    Execution.objects.filter(id=row.id).update(id=new_id, run_id=new_id, **values)
    return new_id


def published(execution_id: UUID, key: str) -> None:
    now = datetime.now(UTC)
    attempt = Attempt.objects.create(
        execution_id=execution_id,
        number=1,
        worker_id=make_worker().worker_id,
        incarnation=1,
        placed_at=now,
        claimed_at=now,
    )
    make_output(attempt, size=9, sha256=key.rsplit("/", 1)[-1])


def test_outputs_of_pruned_executions_and_losing_attempts_are_deleted() -> None:
    pruned = output(id_of(datetime.now(UTC) - timedelta(days=91)))
    kept = old_execution(91)
    won, lost = output(kept, 1), output(kept, 2)
    published(kept, won)
    running = output(old_execution(91, state="ready"))
    young = output(id_of(datetime.now(UTC)))  # too recent to have been pruned
    assert sweep().outputs == 2
    assert outputs() == {won, running, young}
    assert {pruned, lost}.isdisjoint(outputs())


def test_many_outputs_are_swept_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PAGE_OBJECTS", 3)
    execution_id = id_of(datetime.now(UTC) - timedelta(days=91))
    for number in range(7):
        output(execution_id, number + 1)
    young = output(id_of(datetime.now(UTC)))
    assert sweep().outputs == 7
    assert outputs() == {young}


def test_sweep_stops_when_its_time_is_up() -> None:
    age(store_script(owner=make_user(), script=script()))
    assert sweep(within_seconds=0) == SweepResult(artifacts=0, uploads=0, outputs=0, log_packs=0, finished=False)
    assert sweep().artifacts == 1


@pytest.mark.parametrize("key", ["uploads/x", "uploads/", "outputs/x/1/y", "outputs/a", "", f"outputs/{uuid4()}/one/x"])
def test_foreign_key_is_not_parsed(key: str) -> None:
    assert s3.parse_upload_key(key) is None
    assert s3.parse_output_key(key) is None


def test_system_task_returns_its_result() -> None:
    age(store_script(owner=make_user(), script=script()))
    assert sweep_orphans_task() == {"artifacts": 1, "uploads": 0, "outputs": 0, "log_packs": 0, "finished": True}
