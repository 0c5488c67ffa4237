"""Limits of the logs of an attempt and of an owner, independent of the worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.domain import limits
from jobs.domain.errors import QuotaExceeded
from jobs.domain.worker_protocol import AttemptFence, Chunk
from jobs.logs.archiving import archive_logs
from jobs.logs.store import append_chunks, read_chunks
from jobs.models import Attempt, AttemptLog, FullOwner, OwnerQuota
from jobs.storage import quota
from jobs.storage.quota import StorageUsage, check_full_owners, check_quota, read_usage
from tests.support.factories import make_execution, make_job, make_user, make_worker, run_on

pytestmark = pytest.mark.django_db

MEGABYTE = 1024**2


def run_of(owner: User) -> AttemptFence:
    return run_on(make_worker(), make_execution(job=make_job(owner=owner)))


def write(fence: AttemptFence, *data: bytes, first: int = 0) -> None:
    append_chunks(fence, [Chunk(first + n, "stdout", datetime.now(UTC), each) for n, each in enumerate(data)])


def texts(fence: AttemptFence) -> list[bytes]:
    return [bytes(chunk.data) for chunk in read_chunks(fence.execution_id, fence.attempt)]


def attempt_of(fence: AttemptFence) -> Attempt:
    return Attempt.objects.get(execution_id=fence.execution_id, number=fence.attempt)


def test_log_is_cut_at_its_limit_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOG_BYTES", MEGABYTE)
    fence = run_of(make_user())
    write(fence, b"x" * (MEGABYTE // 2))
    write(fence, b"y" * MEGABYTE, b"after the gap", first=1)
    write(fence, b"later", first=3)
    first, mark = texts(fence)
    assert first == b"x" * (MEGABYTE // 2)
    assert mark == b"\n[punctual] Log cut here: an attempt may write 1 MB.\n"
    assert attempt_of(fence).log_truncated


def test_log_with_too_many_chunks_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LOG_CHUNKS", 3)
    fence = run_of(make_user())
    write(fence, *[b"x"] * 10)
    assert texts(fence)[:3] == [b"x"] * 3
    assert len(texts(fence)) == 4
    assert attempt_of(fence).log_truncated


def test_log_of_an_active_run_counts_towards_its_owners_storage() -> None:
    owner = make_user()
    fence = run_of(owner)
    before = read_usage(owner.pk).used_bytes
    write(fence, b"x" * 1000, b"y" * 500)
    counted = 1500 + 2 * limits.LOG_CHUNK_OVERHEAD_BYTES
    assert read_usage(owner.pk).logs_bytes == counted
    assert read_usage(owner.pk).used_bytes == before + counted
    assert read_usage(make_user().pk).logs_bytes == 0


def test_archived_log_counts_once(bucket: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_COMPLETE_AFTER_SECONDS", 0.0)
    owner = make_user()
    fence = run_of(owner)
    write(fence, b"x" * 100_000)
    Attempt.objects.update(ended_at=datetime(2020, 1, 1, tzinfo=UTC), reason="exit")
    assert archive_logs().logs == 1
    stored = AttemptLog.objects.get().pack_length
    assert stored is not None
    assert read_usage(owner.pk).logs_bytes == stored < 100_000


def test_owner_whose_logs_fill_the_storage_cannot_store_more(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    owner = make_user()
    write(run_of(owner), b"x" * MEGABYTE)
    with pytest.raises(QuotaExceeded):
        check_quota(owner.pk, 1)


def test_logs_of_a_full_owner_are_cut_and_others_are_not(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    chatty, other = make_user(), make_user()
    fence, others = run_of(chatty), run_of(other)
    write(fence, b"x" * MEGABYTE)
    assert check_full_owners() == [chatty.pk]
    write(fence, b"more", first=1)
    write(others, b"y" * MEGABYTE * 2, b"more")
    assert b"Log cut here: the owner's storage is full" in texts(fence)[-1]
    assert texts(others)[-1] == b"more"
    assert attempt_of(fence).log_truncated
    assert not attempt_of(others).log_truncated


def test_full_owner_keeps_the_beginning_of_each_log() -> None:
    owner = make_user()
    FullOwner.objects.create(owner_id=owner.pk)
    fence = run_of(owner)
    write(fence, b"what went wrong\n")
    write(fence, b"x" * limits.FULL_OWNER_LOG_BYTES, first=1)
    kept, mark = texts(fence)
    assert kept == b"what went wrong\n"
    assert b"storage is full" in mark


def test_retried_append_to_a_full_owner_cuts_nothing_and_the_next_is_marked() -> None:
    owner = make_user()
    fence = run_of(owner)
    sent = [b"x" * limits.FULL_OWNER_LOG_BYTES, b"y"]
    write(fence, *sent)
    FullOwner.objects.create(owner_id=owner.pk)
    write(fence, *sent)
    assert (texts(fence), attempt_of(fence).log_truncated) == (sent, False)
    write(fence, b"y", b"z", first=1)
    assert texts(fence)[:2] == sent
    assert b"storage is full" in texts(fence)[2]
    assert attempt_of(fence).log_truncated


def test_owner_with_storage_again_gets_whole_logs(settings: Settings) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    owner = make_user()
    write(run_of(owner), b"x" * MEGABYTE)
    assert check_full_owners() == [owner.pk]
    assert check_full_owners() == [owner.pk], "until the owner has storage again"
    OwnerQuota.objects.create(owner=owner, storage_mb=0)
    assert check_full_owners() == []
    fence = run_of(owner)
    write(fence, b"y" * MEGABYTE)
    assert texts(fence) == [b"y" * MEGABYTE]


def test_deleted_owner_is_removed_from_full_owners() -> None:
    FullOwner.objects.create(owner_id=2**30)
    assert check_full_owners() == []
    assert not FullOwner.objects.exists()


def test_check_reads_a_bounded_number_of_an_owners_logs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    monkeypatch.setattr(limits, "STORAGE_CHECK_LOGS", 5)
    owner = make_user()
    fence = run_of(owner)
    write(fence, b"x")
    log, attempt = AttemptLog.objects.get(), attempt_of(fence)
    same = {"execution_id": fence.execution_id, "worker": attempt.worker, "incarnation": 1, "log_bytes": 4000}
    same |= {"placed_at": attempt.placed_at, "claimed_at": attempt.claimed_at}
    others = [Attempt(number=number, **same) for number in range(100, 400)]
    Attempt.objects.bulk_create(others)
    fields = {"execution_id": log.execution_id, "day": log.day, "owner_id": owner.pk, "job_id": log.job_id}
    AttemptLog.objects.bulk_create(AttemptLog(attempt=other.number, **fields) for other in others)
    with CaptureQueriesContext(connection) as queries:
        assert check_full_owners() == [owner.pk]
    (statement,) = [each["sql"] for each in queries if "FROM jobs_fullowner ORDER" in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        assert max(rows_in(cursor.fetchone()[0][0]["Plan"])) <= 5


def rows_in(node: dict[str, Any]) -> Iterator[int]:
    if node.get("Relation Name") == "jobs_attemptlog":
        yield int(node["Actual Rows"])
    for child in node.get("Plans", []):
        yield from rows_in(child)


def test_owner_whose_sum_times_out_is_cut_and_others_are_checked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PUNCTUAL_OWNER_STORAGE_MB = 1
    chatty, slow, unlimited = make_user(), make_user(), make_user()
    OwnerQuota.objects.create(owner=unlimited, storage_mb=0)
    for owner in (chatty, slow, unlimited):
        write(run_of(owner), b"x" * MEGABYTE)
    read = quota.read_usages

    def read_slowly(owner_ids: Iterable[int]) -> dict[int, StorageUsage]:
        wanted = list(owner_ids)
        if {slow.pk, unlimited.pk} & set(wanted):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(60)")
        return read(wanted)

    monkeypatch.setattr(quota, "read_usages", read_slowly)
    monkeypatch.setattr(quota, "CHECK_TIMEOUT_SECONDS", 1.0)
    assert check_full_owners() == [chatty.pk, slow.pk]
