"""Output arrives complete, in order and numbered; a writer that is too fast waits, one that is refused hears it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import StaleAttempt
from jobs.protocol import Chunk, Progress
from workers import log_stream
from workers.log_stream import LogFlusher, LogStream

DEADLINE = 10.0


class Sink:
    def __init__(self) -> None:
        self.batches: list[list[Chunk]] = []
        self.progress: list[Progress] = []
        self.arrived = threading.Event()

    def send(self, chunks: Sequence[Chunk], progress: Progress | None) -> None:
        self.batches.append(list(chunks))
        self.progress += [progress] if progress else []
        self.arrived.set()

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for batch in self.batches for chunk in batch]


@pytest.fixture
def sink() -> Sink:
    return Sink()


def in_thread(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_nothing_written_sends_nothing(sink: Sink) -> None:
    LogStream(sink.send).close()
    assert sink.batches == []


def test_pieces_of_one_stream_are_joined_and_streams_keep_their_order(sink: Sink) -> None:
    stream = LogStream(sink.send)
    for name, data in [("stdout", b"a"), ("stdout", b"b"), ("stderr", b"!"), ("stdout", b"c")]:
        stream.write(name, data)
    stream.close()
    assert [(c.sequence, c.stream, c.data) for c in sink.chunks] == [
        (0, "stdout", b"ab"),
        (1, "stderr", b"!"),
        (2, "stdout", b"c"),
    ]


@pytest.mark.parametrize("text", ["é", "€uro", "𝄞", "a名b"])
def test_a_character_is_never_cut_in_two(sink: Sink, text: str) -> None:
    stream = LogStream(sink.send)
    for byte in text.encode():
        stream.write("stdout", bytes([byte]))
        stream.flush()
    stream.close()
    assert "".join(c.data.decode() for c in sink.chunks) == text


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=9), st.booleans()), max_size=20))
def test_any_bytes_arrive_whole_however_they_are_cut(pieces: list[tuple[str, bytes, bool]]) -> None:
    sink = Sink()
    stream = LogStream(sink.send)
    for name, data, flush in pieces:
        stream.write(name, data)
        if flush:
            stream.flush()
    stream.close()
    for name in ("stdout", "stderr"):
        assert b"".join(c.data for c in sink.chunks if c.stream == name) == b"".join(
            d for n, d, _ in pieces if n == name
        )
    assert [c.sequence for c in sink.chunks] == list(range(len(sink.chunks)))


def test_what_was_sent_is_not_added_to(sink: Sink) -> None:
    stream = LogStream(sink.send)
    stream.write("stdout", b"a")
    stream.flush()
    stream.write("stdout", b"b")
    stream.flush()
    assert [(c.sequence, c.data) for c in sink.chunks] == [(0, b"a"), (1, b"b")]


def test_chunks_and_batches_stay_within_their_size(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "CHUNK_BYTES", 10)
    monkeypatch.setattr(log_stream, "BATCH_BYTES", 25)
    stream = LogStream(sink.send)
    for _ in range(20):
        stream.write("stdout", b"12345")
    stream.close()
    assert b"".join(c.data for c in sink.chunks) == b"12345" * 20
    assert [c.sequence for c in sink.chunks] == list(range(10))
    assert max(len(c.data) for c in sink.chunks) == 10
    assert max(sum(len(c.data) for c in batch) for batch in sink.batches) <= 25


def test_a_chunk_larger_than_a_batch_is_sent_alone(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "BATCH_BYTES", 4)
    stream = LogStream(sink.send)
    stream.write("stdout", b"much too large")
    stream.write("stderr", b"x")
    stream.close()
    assert [len(batch) for batch in sink.batches] == [1, 1]


def test_many_small_chunks_are_no_small_batch(sink: Sink) -> None:
    stream = LogStream(sink.send)
    for _ in range(5000):
        stream.write("stdout", b"o")
        stream.write("stderr", b"e")
    stream.close()
    assert max(map(len, sink.batches)) * log_stream.CHUNK_COST <= log_stream.BATCH_BYTES
    assert len(sink.chunks) == 10_000


def test_a_writer_that_is_too_fast_waits_until_there_is_room(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "MAX_PENDING_BYTES", 100 + 10 * log_stream.CHUNK_COST)
    monkeypatch.setattr(log_stream, "CHUNK_BYTES", 10)
    stream = LogStream(sink.send)
    written: list[int] = []

    def write() -> None:
        for number in range(50):
            stream.write("stdout", b"%010d" % number)
            written.append(number)

    writer = in_thread(write)
    writer.join(0.2)
    assert writer.is_alive(), "nobody has flushed: it must wait"
    assert len(written) == 10, "and hold no more than the limit in memory"
    while writer.is_alive():
        stream.flush()
        writer.join(0.01)
    stream.close()
    assert b"".join(c.data for c in sink.chunks) == b"".join(b"%010d" % n for n in range(50))
    assert [c.sequence for c in sink.chunks] == list(range(50))


def test_progress_goes_along_once_in_a_while_and_the_last_always(sink: Sink) -> None:
    stream = LogStream(sink.send)
    first, *others, last = (Progress(n, "x") for n in range(5))
    stream.report(first)
    stream.write("stdout", b"a")
    stream.flush()
    assert (sink.progress, len(sink.batches)) == ([first], 1)
    for progress in others:
        stream.report(progress)
        stream.flush()
    assert len(sink.batches) == 1, "a moment has not passed"
    stream.report(last)
    stream.close()
    assert sink.progress == [first, last]


def test_progress_is_sent_again_after_a_moment(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "PROGRESS_SECONDS", 0)
    stream = LogStream(sink.send)
    for n in range(3):
        stream.report(Progress(n, ""))
        stream.flush()
        stream.flush()
    stream.close()
    assert [progress.percent for progress in sink.progress] == [0, 1, 2]


def refuse(_chunks: Sequence[Chunk], _progress: Progress | None) -> None:
    raise StaleAttempt


def test_an_error_reaches_the_writer() -> None:
    stream = LogStream(refuse)
    stream.write("stdout", b"a")
    stream.flush()
    with pytest.raises(StaleAttempt):
        stream.write("stdout", b"b")
    with pytest.raises(StaleAttempt):
        stream.close()


def test_an_error_frees_a_writer_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "MAX_PENDING_BYTES", 1)
    stream = LogStream(refuse)
    stream.write("stdout", b"full")
    heard = threading.Event()

    def write() -> None:
        try:
            stream.write("stdout", b"more")
        except StaleAttempt:
            heard.set()

    writer = in_thread(write)
    writer.join(0.05)
    assert writer.is_alive()
    stream.flush()
    assert heard.wait(DEADLINE)


def test_after_an_error_nothing_more_is_sent() -> None:
    calls: list[int] = []

    def fail(chunks: Sequence[Chunk], _progress: Progress | None) -> None:
        calls.append(len(chunks))
        raise StaleAttempt

    stream = LogStream(fail)
    stream.write("stdout", b"a")
    stream.flush()
    stream.flush()
    assert calls == [1]


def test_closing_raises_what_the_last_flush_failed_with() -> None:
    stream = LogStream(refuse)
    stream.write("stdout", b"a")
    with pytest.raises(StaleAttempt):
        stream.close()


@pytest.fixture
def flusher() -> Iterator[LogFlusher]:
    flusher = LogFlusher()
    flusher.start()
    yield flusher
    flusher.stop()


def test_the_flusher_sends_without_being_asked(sink: Sink, flusher: LogFlusher) -> None:
    stream = LogStream(sink.send)
    flusher.add(stream)
    stream.write("stdout", b"live")
    assert sink.arrived.wait(DEADLINE)
    assert sink.chunks[0].data == b"live"


def test_one_refused_stream_does_not_stop_the_others(sink: Sink, flusher: LogFlusher) -> None:
    refused, sound = LogStream(refuse), LogStream(sink.send)
    refused.write("stdout", b"x")
    for stream in (refused, sound):
        flusher.add(stream)
    sound.write("stdout", b"a")
    assert sink.arrived.wait(DEADLINE)
    sink.arrived.clear()
    sound.write("stdout", b"b")
    assert sink.arrived.wait(DEADLINE)


def test_a_removed_stream_is_flushed_no_more(sink: Sink, flusher: LogFlusher) -> None:
    removed, kept = LogStream(sink.send), Sink()
    flusher.add(removed)
    flusher.remove(removed)
    flusher.remove(removed)
    removed.write("stdout", b"a")
    other = LogStream(kept.send)
    flusher.add(other)
    other.write("stdout", b"b")
    assert kept.arrived.wait(DEADLINE)
    assert sink.batches == []


def test_a_run_that_writes_without_end_does_not_keep_others_waiting(sink: Sink) -> None:
    quiet = LogStream(sink.send)
    said = threading.Event()

    def take_and_write_more(chunks: Sequence[Chunk], progress: Progress | None) -> None:
        if not said.is_set():
            said.set()
            quiet.write("stdout", b"a word\n")
        if not sink.arrived.is_set():
            endless.write("stdout", b"x" * log_stream.BATCH_BYTES)

    endless = LogStream(take_and_write_more)
    flusher = LogFlusher()
    flusher.add(quiet)
    flusher.add(endless)
    endless.write("stdout", b"x")
    flusher.start()
    try:
        assert sink.arrived.wait(DEADLINE)
    finally:
        sink.arrived.set()
        flusher.stop()
    assert [chunk.data for chunk in sink.chunks] == [b"a word\n"]
