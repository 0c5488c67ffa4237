"""Carries a run's output to the control plane: in order, numbered, and within a moment of being written.

How far the run says it is goes along, at most about once a second.

One thread flushes for all runs of the worker. A run that writes faster than the control plane takes is held up at its
pipe; nothing is dropped and memory stays bounded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from jobs.protocol import Chunk, Progress

FLUSH_SECONDS = 0.2
PROGRESS_SECONDS = 1.0
CHUNK_BYTES = 64 * 1024
MAX_PENDING_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 1024 * 1024
# What a chunk costs beside its bytes, here and where it is stored: a run may change its stream at every byte.
CHUNK_COST = 256
FLUSH_MYSELF_SECONDS = 5.0

Send = Callable[[Sequence[Chunk], Progress | None], None]


class LogStream:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._pending: list[Chunk] = []
        self._pending_bytes = 0
        self._sequence = 0
        self._incomplete: dict[str, bytes] = {}
        self._progress: Progress | None = None
        self._progress_due_at = 0.0
        self._closing = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._sending = threading.Lock()

    def write(self, stream: str, data: bytes) -> None:
        """Raises what the last flush failed with: the caller's run is then over."""
        # A character that is not complete yet waits for its rest: a reader decodes chunk by chunk.
        data = self._incomplete.pop(stream, b"") + data
        if cut := incomplete_tail(data):
            self._incomplete[stream], data = data[-cut:], data[:-cut]
        if data:
            self._append(stream, data)

    def report(self, progress: Progress) -> None:
        """Only the last one matters: those that come faster than they are sent are never sent."""
        with self._changed:
            self._progress = progress

    def _append(self, stream: str, data: bytes) -> None:
        with self._changed:
            has_room = self._changed.wait_for(self._has_room, timeout=FLUSH_MYSELF_SECONDS)
        if not has_room:
            # Nobody flushes, or all too slowly: the writer does it, and waits for the control plane itself.
            self.flush()
        with self._changed:
            if self._error is not None:
                raise self._error
            now = datetime.now(UTC)
            last = self._pending[-1] if self._pending else None
            if last is not None and last.stream == stream and len(last.data) + len(data) <= CHUNK_BYTES:
                self._pending[-1] = Chunk(last.sequence, stream, last.logged_at, last.data + data)
            else:
                self._pending.append(Chunk(self._sequence, stream, now, data))
                self._sequence += 1
                self._pending_bytes += CHUNK_COST
            self._pending_bytes += len(data)

    def _has_room(self) -> bool:
        return self._error is not None or self._pending_bytes < MAX_PENDING_BYTES

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    def flush(self) -> bool:
        """Sends all that is pending, and says whether much has come meanwhile, which is for the next time: a run that
        writes without end must not keep others waiting. Remembers an error for the writer instead of raising it here.
        """
        with self._sending:
            left = self._pending_bytes
            while True:
                batch, progress = self._take()
                if not batch and progress is None:
                    return False
                try:
                    self._send(batch, progress)
                except Exception as error:  # noqa: BLE001 - it is raised again in the thread that writes
                    with self._changed:
                        self._error = error
                        self._changed.notify_all()
                    return False
                left -= sum(map(_cost, batch))
                if left <= 0:
                    return self._pending_bytes >= BATCH_BYTES

    def close(self) -> None:
        """Flushes for the last time and raises if anything could not be sent."""
        for stream, rest in self._incomplete.items():
            self._append(stream, rest)
        self._incomplete.clear()
        self._closing = True
        self.flush()
        if self._error is not None:
            raise self._error

    def _take(self) -> tuple[list[Chunk], Progress | None]:
        with self._changed:
            if self._error is not None:
                return [], None
            size = count = 0
            for chunk in self._pending:
                if count and size + _cost(chunk) > BATCH_BYTES:
                    break
                size, count = size + _cost(chunk), count + 1
            batch, self._pending = self._pending[:count], self._pending[count:]
            self._pending_bytes -= size
            self._changed.notify_all()
            return batch, self._take_progress()

    def _take_progress(self) -> Progress | None:
        now = time.monotonic()
        if self._progress is None or (now < self._progress_due_at and not self._closing):
            return None
        progress, self._progress = self._progress, None
        self._progress_due_at = now + PROGRESS_SECONDS
        return progress


def _cost(chunk: Chunk) -> int:
    return len(chunk.data) + CHUNK_COST


class LogFlusher:
    """The thread that flushes every open stream a few times a second."""

    def __init__(self) -> None:
        self._streams: set[LogStream] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="log-flusher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)

    def add(self, stream: LogStream) -> None:
        with self._lock:
            self._streams.add(stream)

    def remove(self, stream: LogStream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def _loop(self) -> None:
        behind = False
        while not self._stopping.wait(0 if behind else FLUSH_SECONDS):
            with self._lock:
                streams = list(self._streams)
            behind = sum(stream.flush() for stream in streams) > 0


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character without completing it."""
    for length in range(1, min(4, len(data) + 1)):
        byte = data[-length]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length if length < needed else 0
        if byte < 0x80:
            return 0
    return 0
