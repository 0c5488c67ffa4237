"""Log chunks: appending is fenced and idempotent, reading is ordered and exact."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError

from jobs.domain.errors import NotFound, StaleAttempt
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, Progress, RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.execution.progress import read_progress
from jobs.logs import store
from jobs.logs.store import append_chunks, read_chunks, read_page, read_tail
from jobs.models import Attempt, Execution, LogChunk
from tests.support.factories import claim_on, make_execution, make_worker, place_on, run_on

pytestmark = pytest.mark.django_db


def chunk(sequence: int, data: bytes = b"line\n", stream: str = "stdout") -> Chunk:
    return Chunk(sequence, stream, datetime.now(UTC), data)


def texts(fence: AttemptFence, *, after: int = -1) -> list[bytes]:
    return [c.data for c in read_chunks(fence.execution_id, fence.attempt, after=after)]


@pytest.fixture
def fence() -> AttemptFence:
    return run_on(make_worker(), make_execution())


def test_chunks_are_read_back_as_written(fence: AttemptFence) -> None:
    chunks = [chunk(0, b"out"), chunk(1, b"err", "stderr"), chunk(2, b"out again")]
    append_chunks(fence, chunks)
    assert list(read_chunks(fence.execution_id, 1)) == chunks


def test_any_bytes_are_stored(fence: AttemptFence) -> None:
    data = [bytes(range(256)), b"\x00" * 10, "ünï".encode(), b"", os.urandom(2 * 1024 * 1024)]
    append_chunks(fence, [chunk(i, d) for i, d in enumerate(data)])
    assert texts(fence) == data


def read_shown_progress(fence: AttemptFence) -> tuple[float | None, str] | None:
    progress = read_progress(Execution.objects.get(id=fence.execution_id))
    return None if progress is None else (progress["percent"], progress["message"])


def test_progress_is_stored_with_chunks_or_alone(fence: AttemptFence) -> None:
    append_chunks(fence, [chunk(0, b"a")])
    assert read_shown_progress(fence) is None
    append_chunks(fence, [chunk(1, b"b")], Progress(12.5, "half of it"))
    assert (read_shown_progress(fence), texts(fence)) == ((12.5, "half of it"), [b"a", b"b"])
    append_chunks(fence, [chunk(1, b"b")], Progress(None, "more"))
    assert (read_shown_progress(fence), texts(fence)) == ((None, "more"), [b"a", b"b"])
    append_chunks(fence, [], Progress(100, ""))
    assert read_shown_progress(fence) == (100, "")
    progress = read_progress(Execution.objects.get(id=fence.execution_id))
    assert progress is not None
    assert abs(datetime.now(UTC) - progress["at"]) < timedelta(seconds=60)


@pytest.mark.parametrize(
    "wrong", [{"attempt": 2}, {"incarnation": 7}, {"worker_id": uuid4()}, {"execution_id": uuid4()}]
)
@pytest.mark.parametrize("chunks", [[], [chunk(0)]])
def test_fenced_append_stores_neither_chunks_nor_progress(
    fence: AttemptFence, wrong: dict[str, Any], chunks: list[Chunk]
) -> None:
    with pytest.raises(StaleAttempt):
        append_chunks(replace(fence, **wrong), chunks, Progress(1, "x"))
    assert (read_shown_progress(fence), texts(fence)) == (None, [])


def test_progress_ends_with_its_attempt_and_the_next_starts_empty(fence: AttemptFence) -> None:
    append_chunks(fence, [], Progress(90, "almost"))
    transitions.lose_executions({fence.worker_id: None})
    with pytest.raises(StaleAttempt):
        append_chunks(fence, [], Progress(99, "too late"))
    assert read_shown_progress(fence) == (90, "almost")
    execution = Execution.objects.get(id=fence.execution_id)
    again = run_on(make_worker(), execution)
    assert read_shown_progress(again) is None
    append_chunks(again, [], Progress(5, "again"))
    finish_attempt(again, RunReport(Reason.EXIT, exit_code=0))
    assert read_shown_progress(again) == (5, "again")
    with pytest.raises(StaleAttempt):
        append_chunks(again, [], Progress(99, "too late"))


def test_chunks_are_ordered_by_sequence(fence: AttemptFence) -> None:
    append_chunks(fence, [chunk(2, b"c"), chunk(0, b"a")])
    append_chunks(fence, [chunk(1, b"b")])
    assert texts(fence) == [b"a", b"b", b"c"]


def test_append_is_idempotent(fence: AttemptFence) -> None:
    batch = [chunk(0, b"a"), chunk(1, b"b")]
    append_chunks(fence, batch)
    append_chunks(fence, [*batch, chunk(2, b"c")])
    append_chunks(fence, batch)
    assert texts(fence) == [b"a", b"b", b"c"]


def test_log_longer_than_a_page_is_read_whole(fence: AttemptFence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE_CHUNKS", 7)
    append_chunks(fence, [chunk(i, b"%d" % i) for i in range(50)])
    assert texts(fence) == [b"%d" % i for i in range(50)]
    assert texts(fence, after=46) == [b"47", b"48", b"49"]


def test_page_is_limited_in_bytes_but_has_at_least_one_chunk(
    fence: AttemptFence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PAGE_BYTES", 10)
    append_chunks(fence, [chunk(0, b"x" * 9), chunk(1, b"y" * 50), chunk(2, b"z"), chunk(3, b"z" * 11), chunk(4, b"")])

    def sequences(after: int) -> list[int]:
        return [c.sequence for c in read_page(fence.execution_id, 1, after=after).chunks]

    assert [sequences(after) for after in (-1, 0, 1, 3, 4, 2**31 - 1)] == [[0, 1], [1], [2, 3], [4], [], []]
    assert len(texts(fence)) == 5


def test_tail_is_read_backwards(fence: AttemptFence, monkeypatch: pytest.MonkeyPatch) -> None:
    append_chunks(fence, [chunk(i, b"%d" % i, "stderr" if i % 3 == 0 else "stdout") for i in range(10)])

    def sequences(**wanted: Any) -> list[int]:
        return [c.sequence for c in read_tail(fence.execution_id, None, **wanted).chunks]

    assert sequences(max_bytes=3) == [7, 8, 9]
    assert sequences(max_bytes=3, before=7) == [4, 5, 6]
    assert sequences(max_bytes=3, stream="stderr") == [3, 6, 9]
    assert sequences(max_bytes=100, before=0) == []
    monkeypatch.setattr(store, "PAGE_CHUNKS", 2)
    assert sequences(max_bytes=100) == [8, 9]


def test_reading_one_stream_skips_the_other(fence: AttemptFence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE_CHUNKS", 2)
    append_chunks(fence, [chunk(i, b"%d" % i, "stderr" if i % 3 == 0 else "stdout") for i in range(10)])
    read = read_chunks(fence.execution_id, 1, stream="stderr")
    assert [c.data for c in read] == [b"0", b"3", b"6", b"9"]


@pytest.mark.parametrize("wrong", ["attempt", "worker", "incarnation", "execution"])
def test_only_the_worker_that_claimed_the_attempt_appends(fence: AttemptFence, wrong: str) -> None:
    forged = {
        "attempt": replace(fence, attempt=2),
        "worker": replace(fence, worker_id=uuid4()),
        "incarnation": replace(fence, incarnation=99),
        "execution": replace(fence, execution_id=uuid4()),
    }[wrong]
    with pytest.raises(StaleAttempt):
        append_chunks(forged, [chunk(0)])
    assert not LogChunk.objects.exists()


def test_claimed_attempt_appends_and_queued_one_does_not() -> None:
    worker = make_worker()
    claimed = claim_on(worker, make_execution())
    append_chunks(claimed, [chunk(0)])
    queued = place_on(worker, make_execution())
    with pytest.raises(StaleAttempt):
        append_chunks(queued, [chunk(0)])


def test_finished_attempt_cannot_append(fence: AttemptFence) -> None:
    append_chunks(fence, [chunk(0, b"last words")])
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0))
    with pytest.raises(StaleAttempt):
        append_chunks(fence, [chunk(1, b"ghost")])
    assert texts(fence) == [b"last words"]


def test_attempts_have_separate_logs() -> None:
    worker, execution = make_worker(), make_execution()
    first = run_on(worker, execution)
    append_chunks(first, [chunk(0, b"first")])
    transitions.lose_executions({worker.worker_id: None})
    second = run_on(worker, execution)
    append_chunks(second, [chunk(0, b"second")])
    with pytest.raises(StaleAttempt):
        append_chunks(first, [chunk(1, b"ghost")])
    assert (texts(first), texts(second)) == ([b"first"], [b"second"])


def test_chunks_are_stored_in_the_partition_of_the_claim_day(fence: AttemptFence) -> None:
    claimed_at = Attempt.objects.get().claimed_at
    append_chunks(fence, [replace(chunk(0), logged_at=datetime(2031, 1, 1, tzinfo=UTC))])
    assert LogChunk.objects.get().day == claimed_at.date()


def test_empty_append_and_empty_log(fence: AttemptFence) -> None:
    append_chunks(replace(fence, attempt=7), [])
    with pytest.raises(NotFound):
        list(read_chunks(uuid4(), 1))
    assert texts(fence) == []


def test_unknown_stream_is_refused(fence: AttemptFence) -> None:
    with pytest.raises(DatabaseError):
        append_chunks(fence, [chunk(0, stream="stdin")])
