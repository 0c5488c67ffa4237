"""Indexing turns every chunk into segments exactly once, and the mark promises only indexed chunks."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from jobs import tasks
from jobs.db import sql
from jobs.db.clock import database_now
from jobs.domain.worker_protocol import AttemptFence
from jobs.logs import indexing
from jobs.logs.indexing import index_logs
from jobs.models import AttemptLog, Execution, LogChunk, LogIndexMark, LogSegment
from tests.support.log_writing import end_long_ago, index_all, running, write

pytestmark = pytest.mark.django_db


def segments(fence: AttemptFence) -> list[LogSegment]:
    return list(LogSegment.objects.filter(execution_id=fence.execution_id).order_by("first_sequence", "part"))


def text(fence: AttemptFence) -> str:
    return "".join(each.text[each.carried :] for each in segments(fence))


def test_growing_log_is_indexed_once() -> None:
    fence = running()
    write(fence, "one\nt", "wo")
    assert (index_all().chunks, index_all().chunks) == (2, 0)
    write(fence, " continues\nthree\n", first=2)
    index_all()
    assert text(fence) == "one\ntwo continues\nthree\n"
    first, second = segments(fence)
    assert (second.text, second.carried, second.first_sequence) == ("two continues\nthree\n", 3, 2)
    log, execution = AttemptLog.objects.get(), Execution.objects.get()
    assert (log.indexed_to, log.indexed_at) == (2, None)
    assert (first.owner_id, first.job_id, first.day) == (execution.job.owner_id, execution.job_id, log.day)


def test_log_is_complete_some_time_after_its_attempt_ended() -> None:
    fence = running()
    write(fence, "something")
    end_long_ago(fence)
    index_all()
    assert AttemptLog.objects.get().indexed_at is not None
    assert index_all().chunks == 0


def test_gap_is_waited_for_until_the_log_is_complete() -> None:
    fence = running()
    write(fence, "a", first=0)
    write(fence, "c", first=2)
    index_all()
    assert text(fence) == "a"
    write(fence, "b", first=1)
    write(fence, "e", first=4)
    index_all()
    assert text(fence) == "abc"
    end_long_ago(fence)
    index_all()
    assert text(fence) == "abce"
    assert AttemptLog.objects.get().indexed_at is not None


def test_steps_are_bounded_and_the_next_run_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "STEP_BYTES", 100)
    monkeypatch.setattr(indexing, "STEP_LOGS", 2)
    monkeypatch.setattr(indexing, "STEP_CHUNKS_PER_LOG", 3)
    fences = [running() for _ in range(5)]
    for fence in fences:
        write(fence, *(f"{number} {'x' * 30}\n" for number in range(10)))
        end_long_ago(fence)
    steps = [index_logs(within_seconds=0) for _ in range(3)]
    assert not any(step.finished for step in steps)
    assert LogIndexMark.objects.get().reached_at is None
    while not index_logs(within_seconds=0).finished:
        assert LogIndexMark.objects.get().reached_at is None
    for fence in fences:
        assert text(fence) == "".join(f"{number} {'x' * 30}\n" for number in range(10))
    index_all()
    assert AttemptLog.objects.filter(indexed_at=None).count() == 0


@pytest.mark.parametrize("bound", ["STEP_BYTES", "STEP_CHUNKS_PER_LOG"])
def test_log_with_a_gap_does_not_delay_others(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(indexing, bound, 3)
    monkeypatch.setattr(indexing, "STEP_LOGS", 1)
    waiting, other = running(), running()
    write(waiting, "a")
    write(waiting, *"cdefgh", first=2)
    write(other, "fine\n")
    for _ in range(10):
        index_logs(within_seconds=0)
    assert text(other) == "fine\n"
    write(waiting, "b", first=1)
    for _ in range(10):
        index_logs(within_seconds=0)
    assert text(waiting) == "abcdefgh"


def test_both_attempts_of_an_execution_at_a_step_boundary_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "STEP_LOGS", 2)
    first, second = running(), running()
    write(first, "one\n")
    write(second, "two\n")
    log = AttemptLog.objects.get(execution_id=second.execution_id)
    AttemptLog.objects.create(
        execution_id=log.execution_id, attempt=2, day=log.day, owner_id=log.owner_id, job_id=log.job_id
    )
    chunk = LogChunk.objects.get(execution_id=log.execution_id)
    LogChunk.objects.create(
        day=chunk.day, execution_id=log.execution_id, attempt=2, sequence=0, stream="stdout", logged_at=chunk.logged_at,
        data=b"again\n",
    )  # fmt: skip
    index_all()
    assert {each.text for each in LogSegment.objects.all()} == {"one\n", "two\n", "again\n"}


def test_failed_step_stores_nothing_and_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    fence = running()
    write(fence, "one\n", "two\n")

    def fail(*arguments: object) -> None:
        raise DatabaseError

    with monkeypatch.context() as broken:
        broken.setattr(sql, "execute", fail)
        with pytest.raises(DatabaseError):
            index_logs()
    assert segments(fence) == []
    index_all()
    assert text(fence) == "one\ntwo\n"


def test_mark_is_the_time_until_which_logs_are_indexed() -> None:
    fence = running()
    write(fence, "one\n")
    before = database_now()
    assert index_all().reached_at is not None
    reached = indexing.read_indexed_until()
    assert reached is not None
    assert before <= reached <= database_now()


def test_system_task_returns_its_result() -> None:
    write(running(), "one\n")
    result = tasks.index_logs()
    assert (result["chunks"], result["bytes"], result["segments"], result["finished"]) == (1, 4, 1, True)
    assert isinstance(result["reached_at"], str)
