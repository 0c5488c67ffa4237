"""Logs of ended attempts go into packs; whatever fails in between, none is lost, and none is kept from the others."""

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

from jobs import conf, sql, storage
from jobs.errors import NotFound
from jobs.models import Attempt, AttemptLog, Execution, LogChunk, LogPack
from jobs.protocol import Chunk, Hold
from jobs.services import log_archiving, log_indexing, orphans
from jobs.services.archived_logs import read_archived
from jobs.services.log_archiving import ArchiveResult, archive_logs
from jobs.services.logs import read_chunks, read_page, read_tail
from jobs.services.orphans import sweep_orphans
from jobs.tasks import archive_logs as archive_logs_task
from tests.archived_logs import chunk, index_logs, log_of, write_log
from tests.concurrency.connections import at_once
from tests.factories import make_execution, make_worker, run_on

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("_empty_store")]


@pytest.fixture
def _empty_store(bucket: None) -> None:
    for page in storage.list_objects(storage.LOG_PACKS, before="~"):
        storage.delete_objects([each.key for each in page])


@pytest.fixture
def endpoint(settings: Settings) -> Iterator[Settings]:
    """The address of the object store, to be changed."""
    storage._client().close()
    storage._client.cache_clear()
    yield settings
    storage._client().close()
    storage._client.cache_clear()


def packs() -> list[str]:
    return [each.key for page in storage.list_objects(storage.LOG_PACKS, before="~") for each in page]


def whole(hold: Hold, **options: Any) -> list[Chunk]:
    return list(read_chunks(hold.execution_id, hold.attempt, **options))


def lose_chunks() -> None:
    """As retention does it, but for its rules."""
    LogChunk.objects.all().delete()


def test_a_log_comes_back_from_the_archive_as_it_was() -> None:
    written = [
        chunk(0, "grün\n".encode()),
        chunk(1, b"\x1b[31m\0 half of \xe2\x82", "stderr"),
        chunk(2, b"\xac"),
        chunk(3, b""),
        chunk(4, os.urandom(3_000_000)),
        chunk(5, b"a" * 10_000_000),
        chunk(6, b"the end", "stderr"),
    ]
    hold = write_log(*written)
    assert archive_logs().logs == 1
    lose_chunks()
    assert whole(hold) == written
    assert whole(hold, after=4) == written[5:]
    assert whole(hold, after=6) == whole(hold, after=99) == []
    assert list(read_archived(hold.execution_id, hold.attempt, stream="stderr")) == [written[1], written[6]]


def test_many_logs_are_one_object_that_anybody_can_read() -> None:
    holds = [write_log(chunk(0, b"%d\n" % n), chunk(1, b"more\n", "stderr"), truncated=n == 1) for n in range(5)]
    assert archive_logs() == ArchiveResult(
        logs=5, packs=1, bytes=LogPack.objects.get().size, settled=0, failed=0, finished=True
    )
    (key,) = packs()
    assert key == f"logs/{LogPack.objects.get().id}.jsonl.gz"
    data = b"".join(storage.read_log_pack(LogPack.objects.get().id, 0, LogPack.objects.get().size))
    lines = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    assert [line["truncated"] for line in lines if "chunks" in line] == [n == 1 for n in range(5)]
    assert [line["text"] for line in lines if line.get("stream") == "stdout"] == [f"{n}\n" for n in range(5)]
    lose_chunks()
    assert [whole(hold)[0].data for hold in holds] == [b"%d\n" % n for n in range(5)]
    assert archive_logs().logs == 0


def test_a_pack_is_full_at_so_many_logs_or_bytes_and_pages_end_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "LOG_PACK_LOGS", 4)
    monkeypatch.setattr(conf, "LOG_PACK_BYTES", 30_000)
    monkeypatch.setattr(log_archiving, "MEMORY_BYTES", 10_000)
    monkeypatch.setattr(log_archiving, "PAGE_CHUNKS", 3)
    monkeypatch.setattr(log_archiving, "PAGE_BYTES", 25_000)
    logs = [[chunk(n, os.urandom(10_000 if large else 10)) for n in range(5)] for large in (0, 0, 1, 0, 1, 0)]
    holds = [write_log(*written) for written in logs]
    result = archive_logs()
    # Of the first four the third fills one; of the other two the first does.
    assert (result.logs, result.packs, LogPack.objects.count()) == (6, 4, 4)
    lose_chunks()
    assert [whole(hold) for hold in holds] == logs


def test_what_runs_or_has_just_ended_waits() -> None:
    running = run_on(make_worker(), make_execution())
    hold = write_log(chunk(0), hold=running)
    Attempt.objects.update(ended_at=datetime.now(UTC) - timedelta(seconds=conf.LOG_COMPLETE_AFTER_SECONDS - 5))
    assert archive_logs().logs == 0
    Attempt.objects.update(ended_at=None, reason=None)
    assert archive_logs().logs == 0
    assert log_of(hold).pack_id is None


@pytest.mark.parametrize("indexed_first", [True, False])
def test_a_log_is_settled_once_it_is_archived_and_can_be_searched(indexed_first: bool) -> None:
    hold = write_log(chunk(0), chunk(1))
    if indexed_first:
        index_logs([hold])
    archive_logs()
    assert (log_of(hold).settled_at is not None) == indexed_first
    assert log_of(hold).archived_to == 1
    assert archive_logs().settled == 0
    index_logs([hold])
    assert archive_logs().settled == (0 if indexed_first else 1)
    assert log_of(hold).settled_at is not None


def test_what_was_really_indexed_is_settled() -> None:
    hold = write_log(chunk(0, b"no end of line"))
    log_indexing.index_logs()
    archive_logs()
    assert log_of(hold).settled_at is not None


def test_a_log_without_chunks_is_settled_as_the_empty_one_that_it_is() -> None:
    hold = write_log(chunk(0))
    lose_chunks()
    index_logs([hold])
    assert archive_logs().logs == 1
    assert log_of(hold).settled_at is not None
    assert whole(hold) == []


def test_without_the_object_store_logs_wait(endpoint: Settings, caplog: pytest.LogCaptureFixture) -> None:
    was, endpoint.PUNCTUAL_S3_ENDPOINT_URL = endpoint.PUNCTUAL_S3_ENDPOINT_URL, "http://127.0.0.1:1"
    hold = write_log(chunk(0))
    with caplog.at_level(logging.WARNING, "jobs.services.log_archiving"):
        result = archive_logs()
    assert (result.logs, result.finished) == (0, False)
    assert len([each for each in caplog.records if each.name == "jobs.services.log_archiving"]) == 1
    assert log_of(hold).pack_id is None
    endpoint.PUNCTUAL_S3_ENDPOINT_URL = was
    storage._client().close()
    storage._client.cache_clear()
    assert archive_logs().logs == 1


def test_killed_between_the_object_and_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = write_log(chunk(0, b"kept"))

    def die(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log_archiving, "_place", die)
        with pytest.raises(KeyboardInterrupt):
            archive_logs()
    (orphan,) = packs()
    assert (LogPack.objects.count(), log_of(hold).pack_id) == (0, None)
    assert archive_logs().logs == 1
    monkeypatch.setattr(orphans, "_GRACE", timedelta(seconds=-60))
    assert sweep_orphans(retention=timedelta(days=1)).log_packs == 1
    assert orphan not in packs()
    assert len(packs()) == 1
    lose_chunks()
    assert [each.data for each in whole(hold)] == [b"kept"]


@pytest.mark.django_db(transaction=True)
def test_two_at_once_give_each_log_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "LOG_PACK_LOGS", 3)
    holds = [write_log(chunk(0, b"%d" % n)) for n in range(10)]
    results = at_once([archive_logs, archive_logs])
    assert sum(each.logs for each in results) == 10
    lose_chunks()
    assert [[c.data for c in whole(hold)] for hold in holds] == [[b"%d" % n] for n in range(10)]
    assert set(AttemptLog.objects.values_list("pack_id", flat=True)) == set(
        LogPack.objects.values_list("id", flat=True)
    )


def test_who_comes_second_places_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, put = write_log(chunk(0, b"once")), storage.put_log_pack

    def put_late(*pack: Any) -> None:
        put(*pack)
        with monkeypatch.context() as patched:
            patched.setattr(storage, "put_log_pack", put)
            assert archive_logs().logs == 1

    monkeypatch.setattr(storage, "put_log_pack", put_late)
    assert archive_logs().logs == 0
    assert (LogPack.objects.count(), len(packs())) == (1, 2)
    lose_chunks()
    assert [each.data for each in whole(hold)] == [b"once"]


def test_one_that_cannot_be_read_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, bad, last = (write_log(chunk(0), chunk(1)) for _ in range(3))
    fetch = sql.fetch

    def refuse(name: str, parameters: dict[str, Any], *rest: Any, **options: Any) -> Sequence[Any]:
        if name == "chunks_to_pack" and bad.execution_id in parameters["execution_ids"]:
            raise DatabaseError("missing chunk number 0 for toast value")
        return fetch(name, parameters, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(sql, "fetch", refuse)
        result = archive_logs()
    assert (result.logs, result.failed, result.finished) == (2, 1, True)
    assert [log_of(hold).pack_id is None for hold in (first, bad, last)] == [False, True, False]
    assert archive_logs().logs == 0, "it is not tried at once again"
    AttemptLog.objects.update(archive_failed_at=datetime.now(UTC) - timedelta(hours=2))
    assert archive_logs().logs == 1
    assert log_of(bad).archive_failed_at is None


def test_a_log_that_grows_while_it_is_read_is_left_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, fetch = write_log(chunk(0)), sql.fetch

    def add(name: str, *rest: Any, **options: Any) -> Sequence[Any]:
        if name == "chunks_to_pack":
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
    assert [each.data for each in whole(hold)] == [b"line\n", b"late"]


def test_whoever_reads_while_the_chunks_go_reads_on_in_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.logs.PAGE_CHUNKS", 2)
    written = [chunk(n, b"%d" % n) for n in range(5)]
    hold = write_log(*written)
    reading = read_chunks(hold.execution_id, hold.attempt)
    begun = [next(reading), next(reading), next(reading)]
    archive_logs()
    lose_chunks()
    assert [*begun, *reading] == written


def test_pages_of_the_archive_are_those_of_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.logs.PAGE_CHUNKS", 3)
    monkeypatch.setattr("jobs.services.logs.PAGE_BYTES", 8)
    hold = write_log(*(chunk(n, b"%04d" % n, "stderr" if n % 4 == 3 else "stdout") for n in range(12)))

    def pages() -> list[Sequence[Chunk]]:
        this = hold.execution_id, hold.attempt
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


def test_what_is_still_in_postgres_is_not_asked_of_the_archive(endpoint: Settings) -> None:
    hold = write_log(chunk(0), chunk(1, b"x", "stderr"))
    archive_logs()
    endpoint.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"
    storage._client().close()
    storage._client.cache_clear()
    assert len(whole(hold)) == 2
    assert list(read_archived(hold.execution_id, 1, after=0, stream="stdout")) == []


def test_a_pack_goes_when_its_last_log_was_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write_log(chunk(0)), write_log(chunk(0))
    archive_logs()
    monkeypatch.setattr(orphans, "_GRACE", timedelta(seconds=-60))
    forever = timedelta(days=90)
    for hold, left in ((first, 1), (second, 0)):
        assert sweep_orphans(retention=forever).log_packs == 0
        prune = {"over": [hold.execution_id], "gone": [hold.execution_id]}
        sql.execute("prune_executions", prune)
        assert not Execution.objects.filter(id=hold.execution_id).exists()
        assert sweep_orphans(retention=forever).log_packs == 1 - left
        assert (LogPack.objects.count(), len(packs())) == (left, left)


def test_a_pruned_log_is_no_error_for_whoever_archives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, kept = write_log(chunk(0)), write_log(chunk(0))
    put = storage.put_log_pack

    def prune_meanwhile(*pack: Any) -> None:
        put(*pack)
        sql.execute("prune_executions", {"over": [gone.execution_id], "gone": [gone.execution_id]})

    monkeypatch.setattr(storage, "put_log_pack", prune_meanwhile)
    assert archive_logs().logs == 1
    assert log_of(kept).pack_id is not None
    with pytest.raises(NotFound):
        whole(gone)


def test_many_small_logs_cost_a_dozen_statements_and_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    holds, worker = [], make_worker(slots=1000)
    for _ in range(60):
        holds.append(write_log(chunk(0), chunk(1), hold=run_on(worker, make_execution())))
    index_logs(holds)
    puts, put = [], storage.put_log_pack

    def count(*pack: Any) -> None:
        puts.append(pack[0])
        put(*pack)

    monkeypatch.setattr(storage, "put_log_pack", count)
    with CaptureQueriesContext(connection) as asked:
        assert archive_logs().logs == 60
    assert len(puts) == 1
    # The same, however many: settle, take, read, the pack, the places, take; and what a transaction is made of.
    assert len(asked) <= 12, "\n".join(each["sql"][:200] for each in asked)
    assert not AttemptLog.objects.filter(settled_at__isnull=True).exists()


def test_a_pass_ends_when_its_time_is_up_and_the_system_task_says_what_it_did() -> None:
    write_log(chunk(0))
    assert archive_logs(within_seconds=0) == ArchiveResult(0, 0, 0, 0, 0, finished=False)
    said = archive_logs_task()
    assert (said["logs"], said["finished"]) == (1, True)


def test_a_place_is_whole_or_none() -> None:
    hold = write_log(chunk(0))
    with pytest.raises(DatabaseError), transaction.atomic():
        AttemptLog.objects.filter(execution_id=hold.execution_id).update(pack_offset=0)
    pack = LogPack.objects.create(size=1)
    with pytest.raises(DatabaseError), transaction.atomic():
        AttemptLog.objects.filter(execution_id=hold.execution_id).update(pack=pack, pack_length=1, archived_to=0)
