"""Log chunks: fenced, repeatable, in order, and any bytes at all."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError

from jobs.errors import NotFound, StaleAttempt
from jobs.models import Attempt, Execution, LogChunk
from jobs.protocol import Chunk, Hold, Progress, Report
from jobs.services import logs, transitions
from jobs.services.attempts import finish_attempt
from jobs.services.logs import append_chunks, read_chunks, read_page, read_tail
from jobs.services.progress import progress_of
from jobs.states import Reason
from tests.factories import claim_on, make_execution, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db


def chunk(sequence: int, data: bytes = b"line\n", stream: str = "stdout") -> Chunk:
    return Chunk(sequence, stream, datetime.now(UTC), data)


def texts(hold: Hold, *, after: int = -1) -> list[bytes]:
    return [c.data for c in read_chunks(hold.execution_id, hold.attempt, after=after)]


@pytest.fixture
def hold() -> Hold:
    return run_on(make_worker(), make_execution())


def test_chunks_come_back_as_they_were_written(hold: Hold) -> None:
    chunks = [chunk(0, b"out"), chunk(1, b"err", "stderr"), chunk(2, b"out again")]
    append_chunks(hold, chunks)
    assert list(read_chunks(hold.execution_id, 1)) == chunks


def test_any_bytes_are_kept(hold: Hold) -> None:
    data = [bytes(range(256)), b"\x00" * 10, "ünï".encode(), b"", os.urandom(2 * 1024 * 1024)]
    append_chunks(hold, [chunk(i, d) for i, d in enumerate(data)])
    assert texts(hold) == data


def progress_shown(hold: Hold) -> tuple[float | None, str] | None:
    said = progress_of(Execution.objects.get(id=hold.execution_id))
    return None if said is None else (said["percent"], said["message"])


def test_how_far_a_run_is_comes_with_its_log_or_alone(hold: Hold) -> None:
    append_chunks(hold, [chunk(0, b"a")])
    assert progress_shown(hold) is None
    append_chunks(hold, [chunk(1, b"b")], Progress(12.5, "half of it"))
    assert (progress_shown(hold), texts(hold)) == ((12.5, "half of it"), [b"a", b"b"])
    append_chunks(hold, [chunk(1, b"b")], Progress(None, "more"))
    assert (progress_shown(hold), texts(hold)) == ((None, "more"), [b"a", b"b"])
    append_chunks(hold, [], Progress(100, ""))
    assert progress_shown(hold) == (100, "")
    said = progress_of(Execution.objects.get(id=hold.execution_id))
    assert said is not None
    assert abs(datetime.now(UTC) - said["at"]) < timedelta(seconds=60)


@pytest.mark.parametrize(
    "wrong", [{"attempt": 2}, {"incarnation": 7}, {"worker_id": uuid4()}, {"execution_id": uuid4()}]
)
@pytest.mark.parametrize("chunks", [[], [chunk(0)]])
def test_progress_passes_the_fence_or_nothing_is_written(
    hold: Hold, wrong: dict[str, Any], chunks: list[Chunk]
) -> None:
    with pytest.raises(StaleAttempt):
        append_chunks(replace(hold, **wrong), chunks, Progress(1, "x"))
    assert (progress_shown(hold), texts(hold)) == (None, [])


def test_what_has_ended_says_nothing_more_and_the_next_attempt_begins_anew(hold: Hold) -> None:
    append_chunks(hold, [], Progress(90, "almost"))
    transitions.lose_held({hold.worker_id: None})
    with pytest.raises(StaleAttempt):
        append_chunks(hold, [], Progress(99, "too late"))
    assert progress_shown(hold) == (90, "almost")
    execution = Execution.objects.get(id=hold.execution_id)
    again = run_on(make_worker(), execution)
    assert progress_shown(again) is None
    append_chunks(again, [], Progress(5, "again"))
    finish_attempt(again, Report(Reason.EXIT, exit_code=0))
    assert progress_shown(again) == (5, "again")
    with pytest.raises(StaleAttempt):
        append_chunks(again, [], Progress(99, "too late"))


def test_the_order_is_that_of_the_sequence_not_of_arrival(hold: Hold) -> None:
    append_chunks(hold, [chunk(2, b"c"), chunk(0, b"a")])
    append_chunks(hold, [chunk(1, b"b")])
    assert texts(hold) == [b"a", b"b", b"c"]


def test_a_repeated_write_is_one_write_and_is_not_refused(hold: Hold) -> None:
    batch = [chunk(0, b"a"), chunk(1, b"b")]
    append_chunks(hold, batch)
    append_chunks(hold, [*batch, chunk(2, b"c")])
    append_chunks(hold, batch)
    assert texts(hold) == [b"a", b"b", b"c"]


def test_more_chunks_than_one_read_takes(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAGE_CHUNKS", 7)
    append_chunks(hold, [chunk(i, b"%d" % i) for i in range(50)])
    assert texts(hold) == [b"%d" % i for i in range(50)]
    assert texts(hold, after=46) == [b"47", b"48", b"49"]


def test_a_page_is_bounded_in_bytes_and_holds_one_chunk_at_least(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAGE_BYTES", 10)
    append_chunks(hold, [chunk(0, b"x" * 9), chunk(1, b"y" * 50), chunk(2, b"z"), chunk(3, b"z" * 11), chunk(4, b"")])

    def sequences(after: int) -> list[int]:
        return [c.sequence for c in read_page(hold.execution_id, 1, after=after).chunks]

    assert [sequences(after) for after in (-1, 0, 1, 3, 4, 2**31 - 1)] == [[0, 1], [1], [2, 3], [4], [], []]
    assert len(texts(hold)) == 5


def test_the_end_of_a_log_is_read_backwards(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    append_chunks(hold, [chunk(i, b"%d" % i, "stderr" if i % 3 == 0 else "stdout") for i in range(10)])

    def sequences(**wanted: Any) -> list[int]:
        return [c.sequence for c in read_tail(hold.execution_id, None, **wanted).chunks]

    assert sequences(max_bytes=3) == [7, 8, 9]
    assert sequences(max_bytes=3, before=7) == [4, 5, 6]
    assert sequences(max_bytes=3, stream="stderr") == [3, 6, 9]
    assert sequences(max_bytes=100, before=0) == []
    monkeypatch.setattr(logs, "PAGE_CHUNKS", 2)
    assert sequences(max_bytes=100) == [8, 9]


def test_one_stream_is_read_without_the_other(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAGE_CHUNKS", 2)
    append_chunks(hold, [chunk(i, b"%d" % i, "stderr" if i % 3 == 0 else "stdout") for i in range(10)])
    read = read_chunks(hold.execution_id, 1, stream="stderr")
    assert [c.data for c in read] == [b"0", b"3", b"6", b"9"]


@pytest.mark.parametrize("wrong", ["attempt", "worker", "incarnation", "execution"])
def test_only_the_holder_writes(hold: Hold, wrong: str) -> None:
    forged = {
        "attempt": replace(hold, attempt=2),
        "worker": replace(hold, worker_id=uuid4()),
        "incarnation": replace(hold, incarnation=99),
        "execution": replace(hold, execution_id=uuid4()),
    }[wrong]
    with pytest.raises(StaleAttempt):
        append_chunks(forged, [chunk(0)])
    assert not LogChunk.objects.exists()


def test_a_claimed_attempt_writes_and_a_queued_one_does_not() -> None:
    worker = make_worker()
    claimed = claim_on(worker, make_execution())
    append_chunks(claimed, [chunk(0)])
    queued = place_on(worker, make_execution())
    with pytest.raises(StaleAttempt):
        append_chunks(queued, [chunk(0)])


def test_after_the_end_nothing_is_added(hold: Hold) -> None:
    append_chunks(hold, [chunk(0, b"last words")])
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0))
    with pytest.raises(StaleAttempt):
        append_chunks(hold, [chunk(1, b"ghost")])
    assert texts(hold) == [b"last words"]


def test_attempts_keep_their_logs_apart() -> None:
    worker, execution = make_worker(), make_execution()
    first = run_on(worker, execution)
    append_chunks(first, [chunk(0, b"first")])
    transitions.lose_held({worker.worker_id: None})
    second = run_on(worker, execution)
    append_chunks(second, [chunk(0, b"second")])
    with pytest.raises(StaleAttempt):
        append_chunks(first, [chunk(1, b"ghost")])
    assert (texts(first), texts(second)) == ([b"first"], [b"second"])


def test_all_chunks_of_an_attempt_lie_in_the_day_it_was_claimed(hold: Hold) -> None:
    claimed_at = Attempt.objects.get().claimed_at
    append_chunks(hold, [replace(chunk(0), logged_at=datetime(2031, 1, 1, tzinfo=UTC))])
    assert LogChunk.objects.get().day == claimed_at.date()


def test_nothing_to_write_is_no_error_and_nothing_is_read_of_what_never_ran(hold: Hold) -> None:
    append_chunks(replace(hold, attempt=7), [])
    with pytest.raises(NotFound):
        list(read_chunks(uuid4(), 1))
    assert texts(hold) == []


def test_an_unknown_stream_is_refused(hold: Hold) -> None:
    with pytest.raises(DatabaseError):
        append_chunks(hold, [chunk(0, stream="stdin")])
