"""Archiving logs of finished attempts into packs: no failure loses a log, and none blocks the others."""

from __future__ import annotations

import gzip
import json
import logging
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from jobs.db import sql
from jobs.domain import limits
from jobs.domain.errors import NotFound
from jobs.domain.worker_protocol import AttemptFence, Chunk
from jobs.logs import archiving, indexing
from jobs.logs.archive_reading import read_archived
from jobs.logs.archiving import ArchiveResult, archive_logs
from jobs.logs.store import read_chunks, read_page, read_tail
from jobs.models import Attempt, AttemptLog, Execution, LogChunk, LogPack
from jobs.storage import orphans, s3
from jobs.storage.orphans import sweep_orphans
from jobs.tasks import archive_logs as archive_logs_task
from tests.support.archived_logs import chunk, index_logs, log_of, write_log
from tests.support.barriers import at_once
from tests.support.factories import make_execution, make_worker, run_on

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_empty_store")]


@pytest.fixture
def _empty_store(bucket: None) -> None:
    for page in s3.list_objects(s3.LOG_PACKS_PREFIX, before="~"):
        s3.delete_objects([each.key for each in page])


@pytest.fixture
def endpoint(settings: Settings) -> Iterator[Settings]:
    """Settings whose object store endpoint a test may change."""
    drop_client()
    yield settings
    drop_client()


def drop_client() -> None:
    s3._client().close()
    s3._client.cache_clear()


def packs() -> list[str]:
    return [each.key for page in s3.list_objects(s3.LOG_PACKS_PREFIX, before="~") for each in page]


def whole(fence: AttemptFence, **options: Any) -> list[Chunk]:
    return list(read_chunks(fence.execution_id, fence.attempt, **options))


def lose_chunks() -> None:
    """Delete the chunks from Postgres, as retention does."""
    LogChunk.objects.all().delete()


def test_log_is_read_back_from_the_archive_as_written() -> None:
    written = [
        chunk(0, "grün\n".encode()),
        chunk(1, b"\x1b[31m\0 half of \xe2\x82", "stderr"),
        chunk(2, b"\xac"),
        chunk(3, b""),
        chunk(4, os.urandom(3_000_000)),
        chunk(5, b"a" * 10_000_000),
        chunk(6, b"the end", "stderr"),
    ]
    fence = write_log(*written)
    assert archive_logs().logs == 1
    lose_chunks()
    assert whole(fence) == written
    assert whole(fence, after=4) == written[5:]
    assert whole(fence, after=6) == whole(fence, after=99) == []
    assert list(read_archived(fence.execution_id, fence.attempt, stream="stderr")) == [written[1], written[6]]


def test_many_logs_are_one_gzip_object_of_json_lines() -> None:
    fences = [write_log(chunk(0, b"%d\n" % n), chunk(1, b"more\n", "stderr"), truncated=n == 1) for n in range(5)]
    assert archive_logs() == ArchiveResult(
        logs=5, packs=1, bytes=LogPack.objects.get().size, settled=0, failed=0, finished=True
    )
    (key,) = packs()
    assert key == f"logs/{LogPack.objects.get().id}.jsonl.gz"
    data = b"".join(s3.read_log_pack(LogPack.objects.get().id, 0, LogPack.objects.get().size))
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    assert [line["truncated"] for line in lines if "chunks" in line] == [n == 1 for n in range(5)]
    assert [line["text"] for line in lines if line.get("stream") == "stdout"] == [f"{n}\n" for n in range(5)]
    lose_chunks()
    assert [whole(fence)[0].data for fence in fences] == [b"%d\n" % n for n in range(5)]
    assert archive_logs().logs == 0


def test_packs_are_limited_in_logs_and_bytes_and_pages_span_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_PACK_LOGS", 4)
    monkeypatch.setattr(limits, "LOG_PACK_BYTES", 30_000)
    monkeypatch.setattr(archiving, "MEMORY_BYTES", 10_000)
    monkeypatch.setattr(archiving, "PAGE_CHUNKS", 3)
    monkeypatch.setattr(archiving, "PAGE_BYTES", 25_000)
    logs = [[chunk(n, os.urandom(10_000 if large else 10)) for n in range(5)] for large in (0, 0, 1, 0, 1, 0)]
    fences = [write_log(*written) for written in logs]
    result = archive_logs()
    # Of the first four logs the third fills a pack; of the other two the first does.
    assert (result.logs, result.packs, LogPack.objects.count()) == (6, 4, 4)
    lose_chunks()
    assert [whole(fence) for fence in fences] == logs


def test_running_and_just_finished_attempts_are_not_archived() -> None:
    running = run_on(make_worker(), make_execution())
    fence = write_log(chunk(0), fence=running)
    Attempt.objects.update(ended_at=datetime.now(UTC) - timedelta(seconds=limits.LOG_COMPLETE_AFTER_SECONDS - 5))
    assert archive_logs().logs == 0
    Attempt.objects.update(ended_at=None, reason=None)
    assert archive_logs().logs == 0
    assert log_of(fence).pack_id is None


@pytest.mark.parametrize("indexed_first", [True, False])
def test_log_is_settled_once_it_is_archived_and_indexed(indexed_first: bool) -> None:
    fence = write_log(chunk(0), chunk(1))
    if indexed_first:
        index_logs([fence])
    archive_logs()
    assert (log_of(fence).settled_at is not None) == indexed_first
    assert log_of(fence).archived_to == 1
    assert archive_logs().settled == 0
    index_logs([fence])
    assert archive_logs().settled == (0 if indexed_first else 1)
    assert log_of(fence).settled_at is not None


def test_log_indexed_by_the_indexer_is_settled() -> None:
    fence = write_log(chunk(0, b"no end of line"))
    indexing.index_logs()
    archive_logs()
    assert log_of(fence).settled_at is not None


def test_log_without_chunks_is_settled_as_empty() -> None:
    fence = write_log(chunk(0))
    lose_chunks()
    index_logs([fence])
    assert archive_logs().logs == 1
    assert log_of(fence).settled_at is not None
    assert whole(fence) == []


def test_logs_stay_in_postgres_while_the_object_store_is_down(
    endpoint: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    url, endpoint.PUNCTUAL_S3_ENDPOINT_URL = endpoint.PUNCTUAL_S3_ENDPOINT_URL, "http://127.0.0.1:1"
    fence = write_log(chunk(0))
    with caplog.at_level(logging.WARNING, "jobs.logs.archiving"):
        result = archive_logs()
    assert (result.logs, result.finished) == (0, False)
    assert len([each for each in caplog.records if each.name == "jobs.logs.archiving"]) == 1
    assert log_of(fence).pack_id is None
    endpoint.PUNCTUAL_S3_ENDPOINT_URL = url
    drop_client()
    assert archive_logs().logs == 1


def test_crash_between_object_and_rows_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fence = write_log(chunk(0, b"kept"))

    def die(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(archiving, "_record_pack", die)
        with pytest.raises(KeyboardInterrupt):
            archive_logs()
    (orphan,) = packs()
    assert (LogPack.objects.count(), log_of(fence).pack_id) == (0, None)
    assert archive_logs().logs == 1
    monkeypatch.setattr(orphans, "_GRACE", timedelta(seconds=-60))
    assert sweep_orphans(retention=timedelta(days=1)).log_packs == 1
    assert orphan not in packs()
    assert len(packs()) == 1
    lose_chunks()
    assert [each.data for each in whole(fence)] == [b"kept"]


@pytest.mark.django_db(transaction=True)
def test_concurrent_archivers_record_one_place_per_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_PACK_LOGS", 3)
    fences = [write_log(chunk(0, b"%d" % n)) for n in range(10)]
    results = at_once([archive_logs, archive_logs])
    assert sum(each.logs for each in results) == 10
    lose_chunks()
    assert [[c.data for c in whole(fence)] for fence in fences] == [[b"%d" % n] for n in range(10)]
    assert set(AttemptLog.objects.values_list("pack_id", flat=True)) == set(
        LogPack.objects.values_list("id", flat=True)
    )


def test_slower_archiver_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fence, put = write_log(chunk(0, b"once")), s3.put_log_pack

    def put_late(*pack: Any) -> None:
        put(*pack)
        with monkeypatch.context() as patched:
            patched.setattr(s3, "put_log_pack", put)
            assert archive_logs().logs == 1

    monkeypatch.setattr(s3, "put_log_pack", put_late)
    assert archive_logs().logs == 0
    assert (LogPack.objects.count(), len(packs())) == (1, 2)
    lose_chunks()
    assert [each.data for each in whole(fence)] == [b"once"]


def test_unreadable_log_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, bad, last = (write_log(chunk(0), chunk(1)) for _ in range(3))
    fetch = sql.fetch

    def refuse(name: str, parameters: dict[str, Any], *rest: Any, **options: Any) -> Sequence[Any]:
        if name == "read_chunks_to_pack" and bad.execution_id in parameters["execution_ids"]:
            raise DatabaseError("missing chunk number 0 for toast value")
        return fetch(name, parameters, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(sql, "fetch", refuse)
        result = archive_logs()
    assert (result.logs, result.failed, result.finished) == (2, 1, True)
    assert [log_of(fence).pack_id is None for fence in (first, bad, last)] == [False, True, False]
    assert archive_logs().logs == 0, "a failed log is not retried at once"
    AttemptLog.objects.update(archive_failed_at=datetime.now(UTC) - timedelta(hours=2))
    assert archive_logs().logs == 1
    assert log_of(bad).archive_failed_at is None


def test_log_that_grows_while_it_is_read_is_archived_later(monkeypatch: pytest.MonkeyPatch) -> None:
    fence, fetch = write_log(chunk(0)), sql.fetch

    def add(name: str, *rest: Any, **options: Any) -> Sequence[Any]:
        if name == "read_chunks_to_pack":
            known = LogChunk.objects.get()
            LogChunk.objects.create(
                day=known.day,
                execution_id=known.execution_id,
                attempt=1,
                sequence=1,
                stream="stdout",
                logged_at=known.logged_at,
                data=b"late",
            )
        return fetch(name, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(sql, "fetch", add)
        result = archive_logs()
    assert (result.logs, result.packs, result.failed) == (0, 0, 1)
    assert archive_logs().logs == 1
    lose_chunks()
    assert [each.data for each in whole(fence)] == [b"line\n", b"late"]


def test_reader_continues_in_the_archive_when_chunks_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.logs.store.PAGE_CHUNKS", 2)
    written = [chunk(n, b"%d" % n) for n in range(5)]
    fence = write_log(*written)
    reading = read_chunks(fence.execution_id, fence.attempt)
    begun = [next(reading), next(reading), next(reading)]
    archive_logs()
    lose_chunks()
    assert [*begun, *reading] == written


def test_archive_pages_equal_postgres_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.logs.store.PAGE_CHUNKS", 3)
    monkeypatch.setattr("jobs.logs.store.PAGE_BYTES", 8)
    fence = write_log(*(chunk(n, b"%04d" % n, "stderr" if n % 4 == 3 else "stdout") for n in range(12)))

    def pages() -> list[Sequence[Chunk]]:
        this = fence.execution_id, fence.attempt
        streams: tuple[str | None, ...] = (None, "stdout", "stderr")
        return [
            *(read_page(*this, after=after, stream=stream).chunks for after in range(-1, 12) for stream in streams),
            *(
                read_tail(*this, before=before, stream=stream, max_bytes=max_bytes).chunks
                for before in range(13)
                for stream in streams
                for max_bytes in (1, 8, 9, 1000)
            ),
        ]

    archive_logs()
    stored = pages()
    lose_chunks()
    assert pages() == stored


def test_log_still_in_postgres_needs_no_object_store(endpoint: Settings) -> None:
    fence = write_log(chunk(0), chunk(1, b"x", "stderr"))
    archive_logs()
    endpoint.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"
    drop_client()
    assert len(whole(fence)) == 2
    assert list(read_archived(fence.execution_id, 1, after=0, stream="stdout")) == []


def test_pack_is_deleted_when_its_last_log_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write_log(chunk(0)), write_log(chunk(0))
    archive_logs()
    monkeypatch.setattr(orphans, "_GRACE", timedelta(seconds=-60))
    forever = timedelta(days=90)
    for fence, left in ((first, 1), (second, 0)):
        assert sweep_orphans(retention=forever).log_packs == 0
        prune = {"expired": [fence.execution_id], "deleted": [fence.execution_id]}
        sql.execute("prune_executions", prune)
        assert not Execution.objects.filter(id=fence.execution_id).exists()
        assert sweep_orphans(retention=forever).log_packs == 1 - left
        assert (LogPack.objects.count(), len(packs())) == (left, left)


def test_log_pruned_while_it_is_archived_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, kept = write_log(chunk(0)), write_log(chunk(0))
    put = s3.put_log_pack

    def prune_meanwhile(*pack: Any) -> None:
        put(*pack)
        sql.execute("prune_executions", {"expired": [gone.execution_id], "deleted": [gone.execution_id]})

    monkeypatch.setattr(s3, "put_log_pack", prune_meanwhile)
    assert archive_logs().logs == 1
    assert log_of(kept).pack_id is not None
    with pytest.raises(NotFound):
        whole(gone)


def test_many_small_logs_cost_a_dozen_statements_and_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    fences, worker = [], make_worker(slots=1000)
    for _ in range(60):
        fences.append(write_log(chunk(0), chunk(1), fence=run_on(worker, make_execution())))
    index_logs(fences)
    puts, put = [], s3.put_log_pack

    def count(*pack: Any) -> None:
        puts.append(pack[0])
        put(*pack)

    monkeypatch.setattr(s3, "put_log_pack", count)
    with CaptureQueriesContext(connection) as queries:
        assert archive_logs().logs == 60
    assert len(puts) == 1
    # Independent of the number of logs: settle, select, read, pack, places, select, and the transaction's own.
    assert len(queries) <= 12, "\n".join(each["sql"][:200] for each in queries)
    assert not AttemptLog.objects.filter(settled_at__isnull=True).exists()


def test_archiving_stops_when_its_time_is_up_and_the_task_returns_its_result() -> None:
    write_log(chunk(0))
    assert archive_logs(within_seconds=0) == ArchiveResult(0, 0, 0, 0, 0, finished=False)
    result = archive_logs_task()
    assert (result["logs"], result["finished"]) == (1, True)


def test_incomplete_place_violates_a_constraint() -> None:
    fence = write_log(chunk(0))
    with pytest.raises(DatabaseError), transaction.atomic():
        AttemptLog.objects.filter(execution_id=fence.execution_id).update(pack_offset=0)
    pack = LogPack.objects.create(size=1)
    with pytest.raises(DatabaseError), transaction.atomic():
        AttemptLog.objects.filter(execution_id=fence.execution_id).update(pack=pack, pack_length=1, archived_to=0)
