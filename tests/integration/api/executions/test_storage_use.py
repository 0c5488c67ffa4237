"""Storage usage and quotas: counted, limited, listed and freed; data in use cannot be deleted."""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Callable
from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.domain.states import Reason
from jobs.domain.worker_protocol import RunReport, StoredOutput
from jobs.execution.attempts import finish_attempt
from jobs.models import Artifact, Attempt, AttemptLog, Execution, ExecutionEvent, LogPack, Output, OwnerQuota
from jobs.storage import s3
from jobs.storage.quota import find_fitting, lock_usage, read_usage
from tests.integration.api.conftest import API, execution_of, job_body
from tests.support.factories import make_execution, make_job, make_worker, run_on
from tests.support.submitting import store_script

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket")]
MEGABYTE = 1024 * 1024
Submit = Callable[..., dict[str, Any]]


def script() -> str:
    return f"echo {secrets.token_hex(16)}"


def announce(client: APIClient, size: int) -> Any:
    return client.post(f"{API}/artifacts", {"sha256": secrets.token_hex(32), "size": size}, format="json")


def use_of(client: APIClient) -> dict[str, int]:
    used: dict[str, int] = client.get(f"{API}/usage").json()["storage"]
    return used


def run(owner: User, files: dict[str, bytes]) -> tuple[Execution, Attempt]:
    """Create a succeeded execution with these outputs."""
    execution = make_execution(job=make_job(owner=owner))
    fence = run_on(make_worker(), execution)
    outputs = []
    for name, data in files.items():
        sha256 = hashlib.sha256(data).hexdigest()
        s3.put_output(s3.output_key(execution.id, 1, sha256), sha256, len(data), io.BytesIO(data))
        outputs.append(StoredOutput(name, len(data), sha256))
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0, outputs=outputs, error="said before"))
    execution.refresh_from_db()
    return execution, Attempt.objects.get(execution=execution)


def test_usage_sums_artifacts_and_outputs(client: APIClient, owner: User, stranger: APIClient) -> None:
    announce(client, 1000)
    run(owner, {"a": b"x" * 30, "b": b"y" * 4})
    # The factory's artifact has one byte.
    assert use_of(client) == {
        "used_bytes": 1035, "artifacts_bytes": 1001, "outputs_bytes": 34, "logs_bytes": 0,
        "quota_bytes": 10240 * MEGABYTE,
    }  # fmt: skip
    assert use_of(stranger)["used_bytes"] == 0


def test_usage_includes_archived_logs(client: APIClient, owner: User, stranger: APIClient) -> None:
    pack = LogPack.objects.create(size=100)
    log = {"attempt": 1, "day": date(2030, 1, 1), "owner_id": owner.pk, "job_id": uuid4()}
    for length in (60, 40):
        AttemptLog.objects.create(
            execution_id=uuid4(), pack=pack, pack_offset=0, pack_length=length, archived_to=0, **log
        )
    AttemptLog.objects.create(execution_id=uuid4(), **log)
    assert (use_of(client)["logs_bytes"], use_of(client)["used_bytes"]) == (100, 100)
    assert use_of(stranger)["logs_bytes"] == 0


def test_upload_over_quota_is_rejected_and_not_stored(client: APIClient, owner: User, settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 2
    assert announce(client, MEGABYTE).status_code == 201
    refused = announce(client, MEGABYTE + 1)
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:punctual:quota")
    assert "1.0 MB of your 2 MB" in refused.json()["detail"]
    assert announce(client, MEGABYTE).status_code == 201
    body = job_body(script=script())
    assert client.post(f"{API}/jobs", body, format="json").status_code == 413
    assert use_of(client)["used_bytes"] == 2 * MEGABYTE
    OwnerQuota.objects.create(owner=owner, storage_mb=3)
    assert client.post(f"{API}/jobs", body, format="json").status_code == 201
    OwnerQuota.objects.update(storage_mb=0)
    assert announce(client, 100 * MEGABYTE).status_code == 201


def test_repeated_announcement_counts_only_growth(client: APIClient, settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    body = {"sha256": secrets.token_hex(32), "size": MEGABYTE}
    for _ in range(2):
        assert client.post(f"{API}/artifacts", body, format="json").status_code == 201
    assert client.post(f"{API}/artifacts", body | {"size": MEGABYTE + 1}, format="json").status_code == 413
    assert use_of(client)["used_bytes"] == MEGABYTE


def test_announced_size_cannot_shrink(client: APIClient) -> None:
    body = {"sha256": secrets.token_hex(32), "size": 1000}
    announced = client.post(f"{API}/artifacts", body, format="json").json()
    refused = client.post(f"{API}/artifacts", body | {"size": 1}, format="json")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (400, "size")
    assert use_of(client)["used_bytes"] == 1000
    assert client.delete(f"{API}/artifacts/{announced['id']}").status_code == 204
    assert client.post(f"{API}/artifacts", body | {"size": 1}, format="json").status_code == 201
    assert use_of(client)["used_bytes"] == 1


def test_script_corrects_announced_size(client: APIClient, owner: User) -> None:
    text = script()
    body = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "size": 1000}
    assert client.post(f"{API}/artifacts", body, format="json").status_code == 201
    assert store_script(owner=owner, script=text).size == len(text)
    assert use_of(client)["used_bytes"] == len(text)


@pytest.mark.django_db(transaction=True)
def test_outputs_over_quota_are_dropped_without_changing_outcome(owner: User, settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    big, small = secrets.token_bytes(MEGABYTE), b"small"
    execution, attempt = run(owner, {"big": big, "small": small})
    assert (execution.state, attempt.reason) == ("succeeded", "exit")
    assert attempt.error == "said before\nbig: left out: the owner's storage quota of 1 MB is used up"
    assert [output.name for output in Output.objects.all()] == ["small"]
    assert s3.list_stored_outputs(execution.id, 1) == {(hashlib.sha256(small).hexdigest(), 5)}, "no objects are left"


def test_unlimited_quota_needs_no_lock_or_sum(owner: User, settings: Settings) -> None:
    assert lock_usage(owner.pk) == read_usage(owner.pk)
    settings.PUNCTUAL_OWNER_STORAGE_MB = 0
    with CaptureQueriesContext(connection) as asked:
        assert lock_usage(owner.pk) is None
        assert find_fitting(None, [1, 2]) == [True, True]
    assert len(asked) == 1
    OwnerQuota.objects.create(owner=owner, storage_mb=1)
    assert lock_usage(owner.pk) == read_usage(owner.pk)
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    OwnerQuota.objects.update(storage_mb=0)
    assert lock_usage(owner.pk) is None
    _, attempt = run(owner, {"big": secrets.token_bytes(MEGABYTE)})
    assert [output.name for output in attempt.outputs.all()] == ["big"]


def test_artifacts_are_listed_newest_first_with_usage(client: APIClient, submit: Submit, stranger: APIClient) -> None:
    job = submit(script=script())
    idle = announce(client, 5).json()
    values = client.get(f"{API}/artifacts").json()["results"]
    assert [(each["in_use"], each["status"]) for each in values] == [(False, "announced"), (True, "stored")]
    assert values[0]["id"] == idle["id"]
    page = client.get(f"{API}/artifacts?limit=1").json()
    assert len(client.get(page["next"]).json()["results"]) == 1
    assert stranger.get(f"{API}/artifacts").json()["results"] == []
    client.put(f"{API}/jobs/{job['id']}/cancel")
    assert not client.get(f"{API}/artifacts").json()["results"][1]["in_use"]


def test_artifact_in_use_cannot_be_deleted(client: APIClient, submit: Submit, stranger: APIClient) -> None:
    text = script()
    job = submit(script=text, name="nightly")
    artifact = Artifact.objects.get()
    address = f"{API}/artifacts/{artifact.id}"
    assert stranger.delete(address).status_code == 404
    refused = client.delete(address)
    assert refused.status_code == 409
    assert "nightly" in refused.json()["detail"]
    # The version is outdated, but its execution has not ended.
    assert client.patch(f"{API}/jobs/{job['id']}", {"script": script()}, format="json").status_code == 200
    assert client.delete(address).status_code == 409
    client.put(f"{API}/executions/{execution_of(job['id']).id}/cancel")
    assert client.delete(address).status_code == 204
    assert client.delete(address).status_code == client.get(address).status_code == 404
    assert s3.read_artifact_size(artifact.sha256) is None
    # History still refers to it, and the same bytes may be uploaded again.
    assert store_script(owner=artifact.owner, script=text).id == artifact.id
    assert s3.read_artifact_size(artifact.sha256) == artifact.size


def test_deletion_keeps_same_artifact_of_other_owner(client: APIClient, owner: User, stranger: APIClient) -> None:
    text = script()
    own = store_script(owner=owner, script=text)
    foreign = stranger.post(f"{API}/jobs", job_body(script=text), format="json").json()
    assert client.delete(f"{API}/artifacts/{own.id}").status_code == 204
    assert not Artifact.objects.filter(id=own.id).exists()
    assert s3.read_artifact_size(own.sha256) == len(text)
    assert execution_of(foreign["id"]).version.artifact.verified_at is not None


def test_deleted_outputs_leave_event(client: APIClient, owner: User, stranger: APIClient) -> None:
    execution, _ = run(owner, {"a": b"one", "b": b"two!"})
    address = f"{API}/executions/{execution.id}/outputs"
    assert stranger.delete(address).status_code == 404
    for _ in range(2):
        assert client.delete(address).status_code == 204
    assert client.get(address).json()["results"] == []
    assert s3.list_stored_outputs(execution.id, 1) == set()
    event = ExecutionEvent.objects.get(execution_id=execution.id, name="outputs.deleted")
    assert event.detail == {"by": owner.username, "files": 2, "bytes": 7}
    assert use_of(client)["outputs_bytes"] == 0


def test_outputs_of_unfinished_execution_cannot_be_deleted(client: APIClient, owner: User) -> None:
    execution = make_execution(job=make_job(owner=owner))
    assert client.delete(f"{API}/executions/{execution.id}/outputs").status_code == 409
