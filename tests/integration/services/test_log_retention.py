"""Days of logs leave Postgres when they are old or too much, and none before the archive holds all of it."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta

import pytest
from pytest_django import Settings

from jobs import sql
from jobs.models import Attempt, AttemptLog, Execution, LogChunk
from jobs.protocol import Hold
from jobs.services import log_indexing
from jobs.services.log_archiving import archive_logs
from jobs.services.log_retention import LogPruneResult, prune_logs
from jobs.services.logs import append_chunks, read_chunks
from jobs.tasks import prune_logs as prune_logs_task
from tests.archived_logs import age_log, chunk, index_logs, log_of, partitions_of, write_log
from tests.concurrency.connections import beside
from tests.factories import make_execution, make_worker, run_on

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bucket")]

KEEP = timedelta(days=14)


def prune(*, max_bytes: int = 0) -> LogPruneResult:
    return prune_logs(keep=KEEP, max_bytes=max_bytes)


def old_log(days: int, data: bytes = b"line\n", *, settled: bool = True, partition: bool = True) -> tuple[Hold, date]:
    hold = write_log(chunk(0, data))
    day = age_log(hold, days, partition=partition)
    if settled:
        index_logs([hold])
        assert archive_logs().logs == 1
    return hold, day


def texts(hold: Hold) -> list[bytes]:
    return [each.data for each in read_chunks(hold.execution_id, hold.attempt)]


@pytest.mark.parametrize("partition", [True, False])
def test_a_day_that_is_old_goes_and_its_logs_are_read_from_the_archive(partition: bool) -> None:
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
def test_a_day_that_is_not_settled_stays_and_why_is_said(
    partition: bool, lacks: str, caplog: pytest.LogCaptureFixture
) -> None:
    hold, day = old_log(100, settled=False, partition=partition)
    if lacks == "index":
        archive_logs()
    with caplog.at_level(logging.WARNING):
        result = prune(max_bytes=1)
    assert result.dropped == []
    if partition:
        assert result.kept[day.isoformat()].startswith("1 logs are unsettled")
        assert day.isoformat() in caplog.text
    assert texts(hold) == [b"line\n"]
    assert LogChunk.objects.count() == 1


def test_a_day_with_an_attempt_that_runs_stays() -> None:
    hold = run_on(make_worker(), make_execution())
    append_chunks(hold, [chunk(0)])
    day = age_log(hold, 100)
    archive_logs()
    assert day.isoformat() in prune().kept
    assert LogChunk.objects.count() == 1


def test_what_was_pruned_before_it_was_archived_holds_up_nothing() -> None:
    hold, day = old_log(100, settled=False)
    sql.execute("prune_executions", {"over": [hold.execution_id], "gone": [hold.execution_id]})
    assert prune().dropped == [day.isoformat()]


@pytest.mark.parametrize("partition", [True, False])
@pytest.mark.parametrize("what", ["late", "never noted"])
def test_chunks_that_the_archive_does_not_hold_are_archived_first(what: str, partition: bool) -> None:
    hold, day = old_log(100, b"first", partition=partition)
    if what == "late":
        LogChunk.objects.create(
            day=day,
            execution_id=hold.execution_id,
            attempt=1,
            sequence=1,
            stream="stdout",
            logged_at=datetime.now(UTC),
            data=b"late",
        )
    else:
        AttemptLog.objects.all().delete()
    assert prune().dropped == []
    assert log_of(hold).settled_at is None
    log_indexing.index_logs()
    archive_logs()
    assert log_of(hold).indexed_to == (1 if what == "late" else 0), "what came late can be searched, too"
    assert prune().kept == {}
    assert not LogChunk.objects.exists()
    assert texts(hold) == [b"first", b"late"][: 2 if what == "late" else 1]


def test_the_oldest_days_go_first_until_there_is_room() -> None:
    days = [old_log(ago, bytes(100_000))[1] for ago in (5, 4, 3)]
    today = write_log(chunk(0, bytes(100_000)))
    index_logs([today])
    archive_logs()
    size = prune().bytes
    result = prune(max_bytes=size - 1)
    assert (result.dropped, result.excess_bytes) == ([days[0].isoformat()], 0)
    assert result.bytes == prune().bytes < size


def test_todays_and_unsettled_ones_stay_however_much_they_are(caplog: pytest.LogCaptureFixture) -> None:
    (_, unsettled), (_, settled) = old_log(5, settled=False), old_log_beside_unsettled(3)
    write_log(chunk(0))
    with caplog.at_level(logging.WARNING):
        result = prune(max_bytes=1)
    assert result.dropped == [settled.isoformat()]
    assert list(result.kept) == [unsettled.isoformat()]
    assert result.excess_bytes == result.bytes - 1 > 0
    assert "more than PUNCTUAL_LOG_MAX_MB" in caplog.text
    assert datetime.now(UTC).date() in LogChunk.objects.values_list("day", flat=True)


def old_log_beside_unsettled(days: int) -> tuple[Hold, date]:
    hold = write_log(chunk(0))
    day = age_log(hold, days)
    index_logs([hold])
    archive_logs()
    return hold, day


def test_a_log_in_the_default_partition_goes_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.log_retention.DEFAULT_LOGS", 1)
    monkeypatch.setattr("jobs.services.log_retention.MAX_BATCHES", 1)
    holds = [write_log(*(chunk(n) for n in range(5))) for _ in range(2)]
    for hold in holds:
        age_log(hold, 100, partition=False)
    index_logs(holds)
    archive_logs()
    prune()
    assert LogChunk.objects.count() == 5
    prune()
    assert not LogChunk.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_first_chunk_that_comes_as_its_day_is_dropped_is_not_lost() -> None:
    running = run_on(make_worker(), make_execution())
    _, day = old_log(100)
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    Attempt.objects.filter(execution_id=running.execution_id).update(claimed_at=at)
    Execution.objects.filter(id=running.execution_id).update(claimed_at=at)
    # The writer has not committed while the day is looked at: the drop gives up, and comes again in vain.
    result = beside(lambda: append_chunks(running, [chunk(0, b"at last")]), prune)
    assert result.dropped == []
    assert day.isoformat() in prune().kept
    assert texts(running) == [b"at last"]


def test_the_system_task_follows_the_settings(settings: Settings) -> None:
    _, day = old_log(20)
    settings.PUNCTUAL_LOG_DAYS = 30.0
    assert prune_logs_task()["dropped"] == []
    settings.PUNCTUAL_LOG_DAYS = 19.0
    assert prune_logs_task()["dropped"] == [day.isoformat()]
