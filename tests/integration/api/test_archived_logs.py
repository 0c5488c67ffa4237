"""Whoever reads a log does not see where it lies; and is told when it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs import storage
from jobs.errors import StorageUnavailable
from jobs.models import LogChunk, LogPack
from jobs.protocol import Hold
from jobs.services.log_archiving import archive_logs
from tests.archived_logs import chunk, write_log
from tests.factories import make_execution, make_job, make_user, make_worker, run_on
from tests.integration.api.conftest import API

pytestmark = pytest.mark.usefixtures("bucket")


@pytest.fixture
def hold(owner: User) -> Hold:
    return run_on(make_worker(), make_execution(job=make_job(owner=owner)))


@pytest.fixture
def store(settings: Settings) -> Iterator[Settings]:
    yield settings
    forget_client()


def forget_client() -> None:
    storage._client().close()
    storage._client.cache_clear()


def lose_store(store: Settings) -> None:
    forget_client()
    store.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"


def answers(client: APIClient, hold: Hold) -> list[Any]:
    address = f"{API}/executions/{hold.execution_id}/logs"
    asked: list[dict[str, Any]] = [{}, {"after": 1}, {"stream": "stderr"}, {"after": 0, "stream": "stdout"}]
    beyond: dict[str, Any] = {"after": 99}
    texts = [b"".join(client.get(address, each)) for each in asked]
    chunks = [client.get(address, each | {"format": "json"}).json() for each in [*asked, beyond]]
    return [*texts, *chunks]


def test_the_archive_answers_as_postgres_did(client: APIClient, hold: Hold) -> None:
    write_log(
        chunk(0, b"\x1b[1mout \xe2\x82"),
        chunk(1, b"err\0\n", "stderr"),
        chunk(2, b"\xac <b>\n"),
        chunk(3, b"x" * 3_000_000, "stderr"),
        truncated=True,
        hold=hold,
    )
    before = answers(client, hold)
    assert before[0].startswith(b"\x1b[1mout \xe2\x82err\0\n\xac <b>\n")
    archive_logs()
    assert answers(client, hold) == before
    LogChunk.objects.all().delete()
    assert answers(client, hold) == before


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("trouble", ["away", "gone", "damaged"])
def test_an_archive_that_cannot_be_read_is_said_before_the_first_byte(
    client: APIClient, hold: Hold, store: Settings, format: str, trouble: str
) -> None:
    write_log(*(chunk(n, b"line %d\n" % n) for n in range(9)), hold=hold)
    archive_logs()
    LogChunk.objects.all().delete()
    pack = LogPack.objects.get()
    if trouble == "away":
        lose_store(store)
    elif trouble == "gone":
        storage.delete_objects([storage.log_pack_key(pack.id)])
    else:
        data = bytearray(b"".join(storage.read_log_pack(pack.id, 0, pack.size)))
        data[-9] ^= 1
        storage._client().put_object(
            Bucket=store.PUNCTUAL_S3_BUCKET, Key=storage.log_pack_key(pack.id), Body=bytes(data)
        )
    answer = client.get(f"{API}/executions/{hold.execution_id}/logs", {"format": format})
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]


def test_the_admin_shows_what_is_archived_or_says_why_not(hold: Hold, store: Settings) -> None:
    write_log(chunk(0, b"the only line\n"), hold=hold)
    archive_logs()
    LogChunk.objects.all().delete()
    browser = Client()
    browser.force_login(make_user(is_staff=True, is_superuser=True))
    page = f"/admin/jobs/execution/{hold.execution_id}/log/"
    assert b"the only line" in browser.get(page).content
    lose_store(store)
    assert b"The object store does not answer" in browser.get(page, follow=True).content


def test_a_log_that_breaks_off_says_so(client: APIClient, hold: Hold, store: Settings) -> None:
    # More than one page, so that there is something left when the first was read.
    write_log(*(chunk(n, b"%d\n" % n) for n in range(1500)), hold=hold)
    archive_logs()
    reading = iter(client.get(f"{API}/executions/{hold.execution_id}/logs"))
    pieces = [next(reading)]
    LogChunk.objects.all().delete()
    lose_store(store)
    with pytest.raises(StorageUnavailable):
        pieces.extend(reading)
    assert b"".join(pieces).startswith(b"0\n1\n")
    assert b"1499" not in b"".join(pieces)
    assert b"the rest of this log could not be read" in pieces[-1]
