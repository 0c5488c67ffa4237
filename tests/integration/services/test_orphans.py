"""What nobody refers to is collected, bytes and row; what anybody wants, however late, is not."""

from __future__ import annotations

import hashlib
import io
import logging
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db.models import F
from pytest_django import Settings
from uuid_utils import compat

from jobs import conf, storage
from jobs.errors import NotFound
from jobs.models import Artifact, Attempt, Execution, JobVersion, VersionInput
from jobs.services import orphans
from jobs.services.artifacts import announce_artifact, complete_artifact, store_script, use_artifact
from jobs.services.orphans import SweepResult, sweep_orphans
from jobs.tasks import sweep_orphans as sweep_orphans_task
from tests.factories import make_execution, make_job, make_output, make_user, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket", "_empty_store")]

RETENTION = timedelta(days=90)
GRACE = timedelta(seconds=conf.ORPHAN_GRACE_SECONDS)


@pytest.fixture
def _empty_store(bucket: None) -> None:
    """Other tests leave things there too."""
    for prefix in (storage.UPLOADS, storage.OUTPUTS, storage.LOG_PACKS):
        for page in storage.list_objects(prefix, before="~"):
            storage.delete_objects([each.key for each in page])


@pytest.fixture
def away(settings: Settings) -> Iterator[Settings]:
    """The object store does not answer while the endpoint is another."""

    def forget() -> None:
        storage._client().close()
        storage._client.cache_clear()

    yield settings
    forget()


def lose(settings: Settings) -> str:
    storage._client().close()
    storage._client.cache_clear()
    was = str(settings.PUNCTUAL_S3_ENDPOINT_URL)
    settings.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"
    return was


def find_again(settings: Settings, endpoint: str) -> None:
    storage._client().close()
    storage._client.cache_clear()
    settings.PUNCTUAL_S3_ENDPOINT_URL = endpoint


def script() -> str:
    return f"echo {secrets.token_hex(16)}"


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def age(artifact: Artifact, by: timedelta = GRACE * 2) -> UUID:
    """As if it had been announced and last wanted that long ago; its id tells its age, too."""
    made = id_of(datetime.now(UTC) - by)
    Artifact.objects.filter(id=artifact.id).update(
        id=made, created_at=F("created_at") - by, wanted_at=F("wanted_at") - by
    )
    return made


def id_of(at: datetime) -> UUID:
    identifier: UUID = compat.uuid7(nanoseconds=int(at.timestamp() * 1_000_000_000))
    return identifier


def stored(text: str) -> bool:
    return storage.artifact_size(sha(text)) is not None


def sweep(**options: Any) -> SweepResult:
    return sweep_orphans(retention=RETENTION, **options)


def test_an_artifact_that_no_job_refers_to_goes_after_its_grace() -> None:
    text = script()
    artifact = store_script(owner=make_user(), script=text)
    assert sweep() == SweepResult(artifacts=0, uploads=0, outputs=0, log_packs=0, finished=True)
    age(artifact)
    assert sweep().artifacts == 1
    assert not Artifact.objects.exists()
    assert not stored(text)
    assert sweep().artifacts == 0


def test_one_that_a_job_refers_to_stays() -> None:
    owner, text = make_user(), script()
    artifact_id = age(store_script(owner=owner, script=text))
    job = make_job(owner=owner)
    JobVersion.objects.filter(job=job).update(artifact_id=artifact_id)
    assert sweep().artifacts == 0
    assert stored(text)


@pytest.mark.parametrize("path", ["data/a.csv", None])
def test_one_that_is_the_input_of_a_version_stays(path: str | None) -> None:
    owner, text = make_user(), script()
    artifact_id = age(store_script(owner=owner, script=text))
    version = JobVersion.objects.get(job=make_job(owner=owner))
    VersionInput.objects.create(version=version, path=path, artifact_id=artifact_id)
    assert sweep().artifacts == 0
    # Marked before the version was stored: whoever collects it looks once more.
    Artifact.objects.filter(id=artifact_id).update(doomed_at=datetime.now(UTC))
    assert sweep().artifacts == 0
    assert stored(text)
    assert Artifact.objects.get(id=artifact_id).doomed_at is None


def test_the_grace_is_longer_than_any_address_that_is_given_out() -> None:
    assert 2 * max(conf.UPLOAD_URL_SECONDS, conf.DOWNLOAD_URL_SECONDS) < conf.ORPHAN_GRACE_SECONDS
    # Of what a version names, which stays for as long as the version does.
    assert conf.MAX_DOWNLOAD_URL_SECONDS < conf.ORPHAN_GRACE_SECONDS


def test_bytes_that_another_owner_uses_stay_until_the_last_row_is_gone() -> None:
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
    return [each.key for page in storage.list_objects(storage.UPLOADS, before="~") for each in page]


def test_an_upload_that_was_never_completed_goes_with_its_row() -> None:
    artifact = upload(make_user(), secrets.token_bytes(20))
    assert sweep().artifacts == 0
    assert uploads() == [storage.upload_key(artifact.id)]
    Artifact.objects.update(wanted_at=F("wanted_at") - 2 * GRACE)
    # Its id is a second old, which the sweep of rows goes by first.
    assert orphans.mark_orphans(datetime.now(UTC) + 2 * GRACE) == 1
    assert sweep().artifacts == 1
    assert uploads() == []
    assert not Artifact.objects.exists()
    with pytest.raises(NotFound):
        complete_artifact(artifact)


def test_announcing_anew_starts_the_grace_anew() -> None:
    owner, data = make_user(), secrets.token_bytes(20)
    announced = announce_artifact(owner=owner, sha256=hashlib.sha256(data).hexdigest(), size=20)
    age(announced.artifact)
    upload(owner, data)
    assert sweep().artifacts == 0
    assert complete_artifact(Artifact.objects.get()).verified_at is not None


def test_an_upload_that_came_again_after_it_was_completed_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    old = id_of(datetime.now(UTC) - 2 * GRACE)
    data = secrets.token_bytes(20)
    with httpx.Client() as client:
        url, headers = storage.presign_artifact_upload(old, hashlib.sha256(data).hexdigest(), 20)
        assert client.put(url, content=data, headers=headers).status_code == 200
    assert sweep().uploads == 0, "it may still be on its way"
    monkeypatch.setattr(orphans, "_GRACE", timedelta(0))
    waiting = Artifact.objects.create(id=old, owner=make_user(), sha256="a" * 64, size=1)
    assert orphans._dead_uploads(next(storage.list_objects(storage.UPLOADS, before="~")), datetime.now(UTC)) == []
    waiting.delete()
    assert sweep().uploads == 1
    assert uploads() == []


def test_an_upload_that_came_again_after_its_artifact_was_deleted_goes() -> None:
    artifact = upload(make_user(), secrets.token_bytes(20))
    page, later = next(storage.list_objects(storage.UPLOADS, before="~")), datetime.now(UTC) + 2 * GRACE
    assert orphans._dead_uploads(page, later) == [], "its row may still be completed"
    # As of one whose versions are only history.
    Artifact.objects.filter(id=artifact.id).update(deleted_at=datetime.now(UTC))
    assert orphans._dead_uploads(page, later) == [storage.upload_key(artifact.id)]


def doomed(text: str, owner: User) -> UUID:
    artifact_id = age(store_script(owner=owner, script=text))
    assert orphans.mark_orphans(datetime.now(UTC)) == 1
    return artifact_id


@pytest.mark.parametrize("bytes_gone", [False, True], ids=["before the bytes went", "after the bytes went"])
def test_a_sweep_that_was_killed_halfway_is_finished_by_the_next(bytes_gone: bool) -> None:
    text = script()
    doomed(text, make_user())
    if bytes_gone:
        storage.delete_objects([storage.artifact_key(sha(text))])
    assert sweep().artifacts == 1
    assert not stored(text)
    assert not Artifact.objects.exists()


@pytest.mark.parametrize("bytes_gone", [False, True], ids=["before the bytes went", "after the bytes went"])
def test_whoever_sends_a_doomed_script_again_has_it(bytes_gone: bool) -> None:
    owner, text = make_user(), script()
    artifact_id = doomed(text, owner)
    if bytes_gone:
        storage.delete_objects([storage.artifact_key(sha(text))])
    again = store_script(owner=owner, script=text)
    assert (again.id, again.doomed_at) == (artifact_id, None)
    assert again.verified_at is not None
    assert sweep().artifacts == 0
    assert stored(text)


@pytest.mark.parametrize("bytes_gone", [False, True], ids=["before the bytes went", "after the bytes went"])
def test_whoever_uses_a_doomed_artifact_has_it_or_is_told_to_send_it_again(bytes_gone: bool) -> None:
    owner, text = make_user(), script()
    artifact_id = doomed(text, owner)
    if bytes_gone:
        storage.delete_objects([storage.artifact_key(sha(text))])
    used = use_artifact(owner=owner, artifact_id=artifact_id)
    assert used is not None
    assert (used.verified_at is None) == bytes_gone
    assert sweep().artifacts == 0
    announced = announce_artifact(owner=owner, sha256=sha(text), size=len(text))
    assert (announced.upload is not None) == bytes_gone


def test_nobody_uses_what_is_not_theirs() -> None:
    artifact = store_script(owner=make_user(), script=script())
    assert use_artifact(owner=make_user(), artifact_id=artifact.id) is None
    assert use_artifact(owner=make_user(), artifact_id=None) is None


def test_one_that_got_a_job_after_it_was_marked_stays() -> None:
    owner, text = make_user(), script()
    artifact_id = doomed(text, owner)
    JobVersion.objects.filter(job=make_job(owner=owner)).update(artifact_id=artifact_id)
    assert sweep().artifacts == 0
    assert Artifact.objects.get(id=artifact_id).doomed_at is None
    assert stored(text)


def test_without_the_object_store_nothing_is_lost(away: Settings, caplog: pytest.LogCaptureFixture) -> None:
    text = script()
    age(store_script(owner=make_user(), script=text))
    endpoint = lose(away)
    with caplog.at_level(logging.WARNING):
        result = sweep()
    assert (result.artifacts, result.finished) == (0, False)
    assert "Orphans stay until the object store is back" in caplog.text
    assert Artifact.objects.get().doomed_at is not None
    find_again(away, endpoint)
    assert stored(text)
    assert sweep().artifacts == 1
    assert not stored(text)


def output(execution_id: UUID, attempt: int = 1, *, data: bytes | None = None) -> str:
    data = data or secrets.token_bytes(9)
    digest = hashlib.sha256(data).hexdigest()
    key = storage.output_key(execution_id, attempt, digest)
    storage.put_output(key, digest, len(data), io.BytesIO(data))
    return key


def outputs() -> set[str]:
    return {each.key for page in storage.list_objects(storage.OUTPUTS, before="~") for each in page}


def old_execution(days: float, *, state: str = "succeeded") -> UUID:
    at = datetime.now(UTC) - timedelta(days=days)
    row, made = make_execution(), id_of(at)
    values: dict[str, Any] = {} if state == "ready" else {"state": state, "ended_at": at}
    Execution.objects.filter(id=row.id).update(id=made, run_id=made, **values)
    return made


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


def test_outputs_of_pruned_executions_and_of_attempts_that_did_not_win_go() -> None:
    pruned = output(id_of(datetime.now(UTC) - timedelta(days=91)))
    kept = old_execution(91)
    won, lost = output(kept, 1), output(kept, 2)
    published(kept, won)
    under_way = output(old_execution(91, state="ready"))
    young = output(uuid4_of_today())
    assert sweep().outputs == 2
    assert outputs() == {won, under_way, young}
    assert {pruned, lost}.isdisjoint(outputs())


def uuid4_of_today() -> UUID:
    """Of an execution that does not exist, and is too young to have been pruned."""
    return id_of(datetime.now(UTC))


def test_many_outputs_are_swept_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PAGE_OBJECTS", 3)
    execution_id = id_of(datetime.now(UTC) - timedelta(days=91))
    for number in range(7):
        output(execution_id, number + 1)
    young = output(uuid4_of_today())
    assert sweep().outputs == 7
    assert outputs() == {young}


def test_a_sweep_ends_when_its_time_is_up() -> None:
    age(store_script(owner=make_user(), script=script()))
    assert sweep(within_seconds=0) == SweepResult(artifacts=0, uploads=0, outputs=0, log_packs=0, finished=False)
    assert sweep().artifacts == 1


@pytest.mark.parametrize("key", ["uploads/x", "uploads/", "outputs/x/1/y", "outputs/a", "", f"outputs/{uuid4()}/one/x"])
def test_a_key_that_is_none_of_ours_is_not_taken_for_one(key: str) -> None:
    assert storage.parse_upload_key(key) is None
    assert storage.parse_output_key(key) is None


def test_the_system_task_says_what_it_did() -> None:
    age(store_script(owner=make_user(), script=script()))
    assert sweep_orphans_task() == {"artifacts": 1, "uploads": 0, "outputs": 0, "log_packs": 0, "finished": True}
