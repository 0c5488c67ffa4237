"""Log stream: complete and ordered output, bounded memory, errors raised in the writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import StaleAttempt
from jobs.domain.worker_protocol import Chunk, Progress
from workers.run import log_stream
from workers.run.log_stream import LogFlusher, LogStream

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


def test_writes_are_joined_and_streams_keep_their_order(sink: Sink) -> None:
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
def test_characters_are_never_split(sink: Sink, text: str) -> None:
    stream = LogStream(sink.send)
    for byte in text.encode():
        stream.write("stdout", bytes([byte]))
        stream.flush()
    stream.close()
    assert "".join(c.data.decode() for c in sink.chunks) == text


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=9), st.booleans()), max_size=20))
def test_any_bytes_arrive_complete_however_split(pieces: list[tuple[str, bytes, bool]]) -> None:
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


def test_sent_chunk_is_not_extended(sink: Sink) -> None:
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


def test_oversized_chunk_is_sent_alone(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "BATCH_BYTES", 4)
    stream = LogStream(sink.send)
    stream.write("stdout", b"much too large")
    stream.write("stderr", b"x")
    stream.close()
    assert [len(batch) for batch in sink.batches] == [1, 1]


def test_chunk_overhead_counts_towards_batch_size(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "MAX_BURST_CHUNKS", 10_000)
    stream = LogStream(sink.send)
    for _ in range(5000):
        stream.write("stdout", b"o")
        stream.write("stderr", b"e")
    stream.close()
    assert max(map(len, sink.batches)) * log_stream.CHUNK_OVERHEAD_BYTES <= log_stream.BATCH_BYTES
    assert len(sink.chunks) == 10_000


def test_alternating_streams_make_few_chunks(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("workers.run.log_stream.time.monotonic", lambda: now)
    stream = LogStream(sink.send)
    lines = {name: [b"%s %d\n" % (name.encode(), n) for n in range(20_000)] for name in ("stdout", "stderr")}
    flushes = 0
    for n in range(20_000):
        stream.write("stdout", lines["stdout"][n])
        stream.write("stderr", lines["stderr"][n])
        now += 0.001
        if now >= (flushes + 1) * log_stream.FLUSH_INTERVAL_SECONDS:
            stream.flush()
            flushes += 1
    stream.close()
    for name, written in lines.items():
        assert b"".join(c.data for c in sink.chunks if c.stream == name) == b"".join(written)
    assert [c.sequence for c in sink.chunks] == list(range(len(sink.chunks)))
    # Twenty seconds: the initial burst, then one chunk per stream and flush.
    assert len(sink.chunks) <= log_stream.MAX_BURST_CHUNKS + 2 * (flushes + 1) + 20 * log_stream.MAX_CHUNKS_PER_SECOND
    first = [c.stream for c in sink.chunks[: log_stream.MAX_BURST_CHUNKS]]
    assert first == ["stdout", "stderr"] * (log_stream.MAX_BURST_CHUNKS // 2), "a short burst keeps its order"


def test_fast_writer_waits_for_capacity(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "MAX_PENDING_BYTES", 100 + 10 * log_stream.CHUNK_OVERHEAD_BYTES)
    monkeypatch.setattr(log_stream, "CHUNK_BYTES", 10)
    stream = LogStream(sink.send)
    written: list[int] = []

    def write() -> None:
        for number in range(50):
            stream.write("stdout", b"%010d" % number)
            written.append(number)

    writer = in_thread(write)
    writer.join(0.2)
    assert writer.is_alive(), "it must wait until a flush"
    assert len(written) == 10, "memory stays within the limit"
    while writer.is_alive():
        stream.flush()
        writer.join(0.01)
    stream.close()
    assert b"".join(c.data for c in sink.chunks) == b"".join(b"%010d" % n for n in range(50))
    assert [c.sequence for c in sink.chunks] == list(range(50))


def test_progress_is_throttled_and_the_last_is_sent(sink: Sink) -> None:
    stream = LogStream(sink.send)
    first, *others, last = (Progress(n, "x") for n in range(5))
    stream.report(first)
    stream.write("stdout", b"a")
    stream.flush()
    assert (sink.progress, len(sink.batches)) == ([first], 1)
    for progress in others:
        stream.report(progress)
        stream.flush()
    assert len(sink.batches) == 1, "the interval has not passed"
    stream.report(last)
    stream.close()
    assert sink.progress == [first, last]


def test_progress_is_sent_again_after_interval(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "PROGRESS_INTERVAL_SECONDS", 0)
    stream = LogStream(sink.send)
    for n in range(3):
        stream.report(Progress(n, ""))
        stream.flush()
        stream.flush()
    stream.close()
    assert [progress.percent for progress in sink.progress] == [0, 1, 2]


def refuse(_chunks: Sequence[Chunk], _progress: Progress | None) -> None:
    raise StaleAttempt


def test_send_error_is_raised_in_writer() -> None:
    stream = LogStream(refuse)
    stream.write("stdout", b"a")
    stream.flush()
    with pytest.raises(StaleAttempt):
        stream.write("stdout", b"b")
    with pytest.raises(StaleAttempt):
        stream.close()


def test_send_error_wakes_waiting_writer(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_nothing_is_sent_after_an_error() -> None:
    calls: list[int] = []

    def fail(chunks: Sequence[Chunk], _progress: Progress | None) -> None:
        calls.append(len(chunks))
        raise StaleAttempt

    stream = LogStream(fail)
    stream.write("stdout", b"a")
    stream.flush()
    stream.flush()
    assert calls == [1]


def test_close_raises_error_of_last_flush() -> None:
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


def test_flusher_sends_periodically(sink: Sink, flusher: LogFlusher) -> None:
    stream = LogStream(sink.send)
    flusher.add(stream)
    stream.write("stdout", b"live")
    assert sink.arrived.wait(DEADLINE)
    assert sink.chunks[0].data == b"live"


def test_failing_stream_does_not_stop_the_others(sink: Sink, flusher: LogFlusher) -> None:
    refused, sound = LogStream(refuse), LogStream(sink.send)
    refused.write("stdout", b"x")
    for stream in (refused, sound):
        flusher.add(stream)
    sound.write("stdout", b"a")
    assert sink.arrived.wait(DEADLINE)
    sink.arrived.clear()
    sound.write("stdout", b"b")
    assert sink.arrived.wait(DEADLINE)


def test_removed_stream_is_not_flushed(sink: Sink, flusher: LogFlusher) -> None:
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


def test_endless_writer_does_not_delay_other_streams(sink: Sink) -> None:
    quiet = LogStream(sink.send)
    first_sent = threading.Event()

    def take_and_write_more(chunks: Sequence[Chunk], progress: Progress | None) -> None:
        if not first_sent.is_set():
            first_sent.set()
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
