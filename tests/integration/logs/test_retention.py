"""Retention drops old or excess days of logs from Postgres, but only once they are fully archived."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

import pytest
from pytest_django import Settings

from jobs.db import sql
from jobs.domain.worker_protocol import AttemptFence
from jobs.logs import indexing
from jobs.logs.archiving import archive_logs
from jobs.logs.retention import LogPruneResult, prune_logs
from jobs.logs.store import append_chunks, read_chunks
from jobs.models import Attempt, AttemptLog, Execution, LogChunk
from jobs.tasks import prune_logs as prune_logs_task
from tests.support.archived_logs import age_log, chunk, index_logs, log_of, partitions_of, write_log
from tests.support.barriers import beside
from tests.support.factories import make_execution, make_worker, run_on

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket")]

KEEP = timedelta(days=14)


def prune(*, max_bytes: int = 0) -> LogPruneResult:
    return prune_logs(keep=KEEP, max_bytes=max_bytes)


def old_log(
    days: int, data: bytes = b"line\n", *, settled: bool = True, partition: bool = True
) -> tuple[AttemptFence, date]:
    fence = write_log(chunk(0, data))
    day = age_log(fence, days, partition=partition)
    if settled:
        index_logs([fence])
        assert archive_logs().logs == 1
    return fence, day


def texts(fence: AttemptFence) -> list[bytes]:
    return [each.data for each in read_chunks(fence.execution_id, fence.attempt)]


@pytest.mark.parametrize("partition", [True, False])
def test_old_day_is_dropped_and_its_logs_are_read_from_the_archive(partition: bool) -> None:
    old, gone = old_log(15, b"old", partition=partition)
    young, kept = old_log(13, b"young", partition=partition)
    result = prune()
    assert result.dropped == ([gone.isoformat()] if partition else [])
    assert (result.kept, result.excess_bytes) == ({}, 0)
    assert partitions_of(gone) == []
    assert list(LogChunk.objects.values_list("day", flat=True)) == [kept]
    assert (texts(old), texts(young)) == ([b"old"], [b"young"])


@pytest.mark.parametrize("partition", [True, False])
@pytest.mark.parametrize("lacks", ["archive", "index"])
def test_unsettled_day_is_kept_with_a_reason(partition: bool, lacks: str, caplog: pytest.LogCaptureFixture) -> None:
    fence, day = old_log(100, settled=False, partition=partition)
    if lacks == "index":
        archive_logs()
    with caplog.at_level(logging.WARNING):
        result = prune(max_bytes=1)
    assert result.dropped == []
    if partition:
        assert result.kept[day.isoformat()].startswith("1 logs are unsettled")
        assert day.isoformat() in caplog.text
    assert texts(fence) == [b"line\n"]
    assert LogChunk.objects.count() == 1


def test_day_with_a_running_attempt_is_kept() -> None:
    fence = run_on(make_worker(), make_execution())
    append_chunks(fence, [chunk(0)])
    day = age_log(fence, 100)
    archive_logs()
    assert day.isoformat() in prune().kept
    assert LogChunk.objects.count() == 1


def test_pruned_unarchived_log_does_not_block_its_day() -> None:
    fence, day = old_log(100, settled=False)
    sql.execute("prune_executions", {"expired": [fence.execution_id], "deleted": [fence.execution_id]})
    assert prune().dropped == [day.isoformat()]


@pytest.mark.parametrize("partition", [True, False])
@pytest.mark.parametrize("what", ["late", "unrecorded"])
def test_chunks_missing_in_the_archive_are_archived_first(what: str, partition: bool) -> None:
    fence, day = old_log(100, b"first", partition=partition)
    if what == "late":
        LogChunk.objects.create(
            day=day,
            execution_id=fence.execution_id,
            attempt=1,
            sequence=1,
            stream="stdout",
            logged_at=datetime.now(UTC),
            data=b"late",
        )
    else:
        AttemptLog.objects.all().delete()
    assert prune().dropped == []
    assert log_of(fence).settled_at is None
    indexing.index_logs()
    archive_logs()
    assert log_of(fence).indexed_to == (1 if what == "late" else 0), "the late chunk is indexed, too"
    assert prune().kept == {}
    assert not LogChunk.objects.exists()
    assert texts(fence) == [b"first", b"late"][: 2 if what == "late" else 1]


def test_oldest_days_are_dropped_first_until_the_size_fits() -> None:
    days = [old_log(ago, bytes(100_000))[1] for ago in (5, 4, 3)]
    today = write_log(chunk(0, bytes(100_000)))
    index_logs([today])
    archive_logs()
    size = prune().bytes
    result = prune(max_bytes=size - 1)
    assert (result.dropped, result.excess_bytes) == ([days[0].isoformat()], 0)
    assert result.bytes == prune().bytes < size


def test_today_and_unsettled_days_are_kept_over_the_size_limit(caplog: pytest.LogCaptureFixture) -> None:
    (_, unsettled), (_, settled) = old_log(5, settled=False), old_settled_log(3)
    write_log(chunk(0))
    with caplog.at_level(logging.WARNING):
        result = prune(max_bytes=1)
    assert result.dropped == [settled.isoformat()]
    assert list(result.kept) == [unsettled.isoformat()]
    assert result.excess_bytes == result.bytes - 1 > 0
    assert "exceed PUNCTUAL_LOG_MAX_MB" in caplog.text
    assert datetime.now(UTC).date() in LogChunk.objects.values_list("day", flat=True)


def old_settled_log(days: int) -> tuple[AttemptFence, date]:
    fence = write_log(chunk(0))
    day = age_log(fence, days)
    index_logs([fence])
    archive_logs()
    return fence, day


def test_default_partition_loses_whole_logs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.logs.retention.DEFAULT_PARTITION_BATCH_LOGS", 1)
    monkeypatch.setattr("jobs.logs.retention.MAX_BATCHES", 1)
    fences = [write_log(*(chunk(n) for n in range(5))) for _ in range(2)]
    for fence in fences:
        age_log(fence, 100, partition=False)
    index_logs(fences)
    archive_logs()
    prune()
    assert LogChunk.objects.count() == 5
    prune()
    assert not LogChunk.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_first_chunk_concurrent_with_dropping_its_day_is_not_lost() -> None:
    running = run_on(make_worker(), make_execution())
    _, day = old_log(100)
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    Attempt.objects.filter(execution_id=running.execution_id).update(claimed_at=at)
    Execution.objects.filter(id=running.execution_id).update(claimed_at=at)
    # The writer has not committed when the day is checked: the drop times out, and the next one finds the log.
    result = beside(lambda: append_chunks(running, [chunk(0, b"at last")]), prune)
    assert result.dropped == []
    assert day.isoformat() in prune().kept
    assert texts(running) == [b"at last"]


def test_system_task_follows_the_settings(settings: Settings) -> None:
    _, day = old_log(20)
    settings.PUNCTUAL_LOG_DAYS = 30.0
    assert prune_logs_task()["dropped"] == []
    settings.PUNCTUAL_LOG_DAYS = 19.0
    assert prune_logs_task()["dropped"] == [day.isoformat()]
