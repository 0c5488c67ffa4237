"""Segments are made of every chunk once, whatever happens in between, and the mark promises no more than there is."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from jobs import sql, tasks
from jobs.models import AttemptLog, Execution, LogChunk, LogIndexMark, LogSegment
from jobs.protocol import Hold
from jobs.services import log_indexing
from jobs.services.log_indexing import index_logs
from jobs.services.schedules import database_now
from tests.integration.services.log_writing import end_long_ago, index_all, running, write

pytestmark = pytest.mark.django_db


def segments(hold: Hold) -> list[LogSegment]:
    return list(LogSegment.objects.filter(execution_id=hold.execution_id).order_by("first_sequence", "part"))


def text(hold: Hold) -> str:
    return "".join(each.text[each.carried :] for each in segments(hold))


def test_what_is_written_is_indexed_once_as_it_comes() -> None:
    hold = running()
    write(hold, "one\nt", "wo")
    assert (index_all().chunks, index_all().chunks) == (2, 0)
    write(hold, " goes on\nthree\n", first=2)
    index_all()
    assert text(hold) == "one\ntwo goes on\nthree\n"
    first, second = segments(hold)
    assert (second.text, second.carried, second.first_sequence) == ("two goes on\nthree\n", 3, 2)
    log, execution = AttemptLog.objects.get(), Execution.objects.get()
    assert (log.indexed_to, log.indexed_at) == (2, None)
    assert (first.owner_id, first.job_id, first.day) == (execution.job.owner_id, execution.job_id, log.day)


def test_a_log_is_done_some_time_after_its_attempt_ended() -> None:
    hold = running()
    write(hold, "something")
    end_long_ago(hold)
    index_all()
    assert AttemptLog.objects.get().indexed_at is not None
    assert index_all().chunks == 0


def test_what_is_missing_in_a_log_that_grows_is_waited_for_and_in_the_end_left_out() -> None:
    hold = running()
    write(hold, "a", first=0)
    write(hold, "c", first=2)
    index_all()
    assert text(hold) == "a"
    write(hold, "b", first=1)
    write(hold, "e", first=4)
    index_all()
    assert text(hold) == "abc"
    end_long_ago(hold)
    index_all()
    assert text(hold) == "abce"
    assert AttemptLog.objects.get().indexed_at is not None


def test_steps_are_bounded_and_the_next_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_indexing, "STEP_BYTES", 100)
    monkeypatch.setattr(log_indexing, "STEP_LOGS", 2)
    monkeypatch.setattr(log_indexing, "STEP_CHUNKS_OF_EACH", 3)
    holds = [running() for _ in range(5)]
    for hold in holds:
        write(hold, *(f"{number} {'x' * 30}\n" for number in range(10)))
        end_long_ago(hold)
    steps = [index_logs(within_seconds=0) for _ in range(3)]
    assert not any(step.finished for step in steps)
    assert LogIndexMark.objects.get().reached_at is None
    while not index_logs(within_seconds=0).finished:
        assert LogIndexMark.objects.get().reached_at is None
    for hold in holds:
        assert text(hold) == "".join(f"{number} {'x' * 30}\n" for number in range(10))
    index_all()
    assert AttemptLog.objects.filter(indexed_at=None).count() == 0


@pytest.mark.parametrize("bound", ["STEP_BYTES", "STEP_CHUNKS_OF_EACH"])
def test_a_log_that_lacks_a_chunk_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(log_indexing, bound, 3)
    monkeypatch.setattr(log_indexing, "STEP_LOGS", 1)
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


def test_two_attempts_of_an_execution_are_not_cut_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_indexing, "STEP_LOGS", 2)
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


def test_a_step_that_fails_leaves_nothing_and_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = running()
    write(hold, "one\n", "two\n")

    def fail(*arguments: object) -> None:
        raise DatabaseError

    with monkeypatch.context() as broken:
        broken.setattr(sql, "execute", fail)
        with pytest.raises(DatabaseError):
            index_logs()
    assert segments(hold) == []
    index_all()
    assert text(hold) == "one\ntwo\n"


def test_the_mark_says_how_far_the_index_reaches() -> None:
    hold = running()
    write(hold, "one\n")
    before = database_now()
    assert index_all().reached_at is not None
    reached = log_indexing.read_reached_at()
    assert reached is not None
    assert before <= reached <= database_now()


def test_the_system_task_tells_what_it_did() -> None:
    write(running(), "one\n")
    told = tasks.index_logs()
    assert (told["chunks"], told["bytes"], told["segments"], told["finished"]) == (1, 4, 1, True)
    assert isinstance(told["reached_at"], str)
