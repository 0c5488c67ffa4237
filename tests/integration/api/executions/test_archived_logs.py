"""Archived logs read like live ones, and unreadable archives are reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.api.resources.executions.execution_status import read_status
from jobs.api.resources.executions.log_stream import LogReader
from jobs.domain.errors import StorageUnavailable
from jobs.domain.worker_protocol import AttemptFence
from jobs.logs.archiving import archive_logs
from jobs.models import LogChunk, LogPack
from jobs.storage import s3
from tests.integration.api.conftest import API
from tests.support.archived_logs import chunk, write_log
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on

pytestmark = pytest.mark.usefixtures("bucket")


@pytest.fixture
def fence(owner: User) -> AttemptFence:
    return run_on(make_worker(), make_execution(job=make_job(owner=owner)))


@pytest.fixture
def store(settings: Settings) -> Iterator[Settings]:
    yield settings
    forget_client()


def forget_client() -> None:
    s3._client().close()
    s3._client.cache_clear()


def lose_store(store: Settings) -> None:
    forget_client()
    store.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"


def answers(client: APIClient, fence: AttemptFence) -> list[Any]:
    address = f"{API}/executions/{fence.execution_id}/logs"
    asked: list[dict[str, Any]] = [{}, {"after": 1}, {"stream": "stderr"}, {"after": 0, "stream": "stdout"}]
    beyond: dict[str, Any] = {"after": 99}
    texts = [b"".join(client.get(address, each)) for each in asked]
    chunks = [client.get(address, each | {"format": "json"}).json() for each in [*asked, beyond]]
    return [*texts, *chunks]


def test_archived_log_reads_like_live_log(client: APIClient, fence: AttemptFence) -> None:
    write_log(
        chunk(0, b"\x1b[1mout \xe2\x82"),
        chunk(1, b"err\0\n", "stderr"),
        chunk(2, b"\xac <b>\n"),
        chunk(3, b"x" * 3_000_000, "stderr"),
        truncated=True,
        fence=fence,
    )
    before = answers(client, fence)
    assert before[0].startswith(b"\x1b[1mout \xe2\x82err\0\n\xac <b>\n")
    archive_logs()
    assert answers(client, fence) == before
    LogChunk.objects.all().delete()
    assert answers(client, fence) == before


def test_follower_reads_archived_log_once(fence: AttemptFence, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(*(chunk(number, b"%d\n" % number * 10_000) for number in range(50)), fence=fence)
    archive_logs()
    LogChunk.objects.all().delete()
    read: list[tuple[Any, ...]] = []
    read_log_pack = s3.read_log_pack

    def counted(*place: Any) -> Any:
        read.append(place)
        return read_log_pack(*place)

    monkeypatch.setattr(s3, "read_log_pack", counted)
    status = partial(read_status, owner, fence.execution_id)
    reader = LogReader(fence.execution_id, status, None, -1, None, only_this_attempt=False)
    events, polls, more = list[bytes](), 0, True
    while more:
        found, more = reader.poll()
        events += found
        polls += 1
    assert [json.loads(each.partition(b"data: ")[2])["sequence"] for each in events[:-1]] == list(range(50))
    assert polls > 3, "several pages"
    assert len(read) == 1


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("trouble", ["away", "gone", "damaged"])
def test_unreadable_archive_is_reported_before_first_byte(
    client: APIClient, fence: AttemptFence, store: Settings, format: str, trouble: str
) -> None:
    write_log(*(chunk(n, b"line %d\n" % n) for n in range(9)), fence=fence)
    archive_logs()
    LogChunk.objects.all().delete()
    pack = LogPack.objects.get()
    if trouble == "away":
        lose_store(store)
    elif trouble == "gone":
        s3.delete_objects([s3.log_pack_key(pack.id)])
    else:
        data = bytearray(b"".join(s3.read_log_pack(pack.id, 0, pack.size)))
        data[-9] ^= 1
        s3._client().put_object(Bucket=store.PUNCTUAL_S3_BUCKET, Key=s3.log_pack_key(pack.id), Body=bytes(data))
    answer = client.get(f"{API}/executions/{fence.execution_id}/logs", {"format": format})
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]


def test_admin_shows_archived_log_or_error(fence: AttemptFence, store: Settings) -> None:
    write_log(chunk(0, b"the only line\n"), fence=fence)
    archive_logs()
    LogChunk.objects.all().delete()
    browser = Client()
    browser.force_login(make_user(is_staff=True, is_superuser=True))
    page = f"/admin/jobs/execution/{fence.execution_id}/log/"
    assert b"the only line" in browser.get(page).content
    lose_store(store)
    assert b"The object store does not answer" in browser.get(page, follow=True).content


def test_truncated_download_ends_with_notice(client: APIClient, fence: AttemptFence, store: Settings) -> None:
    # More than one page, so that some is left after the first.
    write_log(*(chunk(n, b"%d\n" % n) for n in range(1500)), fence=fence)
    archive_logs()
    reading = iter(client.get(f"{API}/executions/{fence.execution_id}/logs"))
    pieces = [next(reading)]
    LogChunk.objects.all().delete()
    lose_store(store)
    with pytest.raises(StorageUnavailable):
        pieces.extend(reading)
    assert b"".join(pieces).startswith(b"0\n1\n")
    assert b"1499" not in b"".join(pieces)
    assert b"the rest of this log could not be read" in pieces[-1]
