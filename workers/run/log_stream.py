"""Stream of a run's output and progress to the control plane, in numbered chunks.

One thread flushes the streams of all runs. A run that writes faster than the control plane accepts blocks at its pipe;
nothing is dropped and memory stays bounded. Progress is sent at most once a second.

Every chunk is a row in the database. A run that alternates between its streams may start `MAX_BURST_CHUNKS` chunks,
then `MAX_CHUNKS_PER_SECOND`; above that rate its writes join the last unsent chunk of their stream. Each stream keeps
its order; only the interleaving of the two within a flush is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from jobs.domain.worker_protocol import Chunk, Progress
from workers.sandbox.values import MIB

FLUSH_INTERVAL_SECONDS = 0.2
PROGRESS_INTERVAL_SECONDS = 1.0
CHUNK_BYTES = 64 * 1024
MAX_PENDING_BYTES = 4 * MIB
BATCH_BYTES = MIB
# Cost of a chunk besides its data, in memory and in the database: a run may change its stream at every byte.
CHUNK_OVERHEAD_BYTES = 256
# A run that uses one stream makes one chunk per flush.
MAX_CHUNKS_PER_SECOND = 1 / FLUSH_INTERVAL_SECONDS
MAX_BURST_CHUNKS = 256
WRITER_FLUSH_SECONDS = 5.0

Send = Callable[[Sequence[Chunk], Progress | None], None]


class LogStream:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._pending: list[Chunk] = []
        self._pending_bytes = 0
        self._sequence = 0
        self._chunk_allowance = float(MAX_BURST_CHUNKS)
        self._allowance_at = time.monotonic()
        self._incomplete: dict[str, bytes] = {}
        self._progress: Progress | None = None
        self._progress_due_at = 0.0
        self._closing = False
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._sending = threading.Lock()

    def write(self, stream: str, data: bytes) -> None:
        """Append output; raise the error of the last flush, which ends the caller's run."""
        # Keep an incomplete UTF-8 character for the next chunk, as readers decode chunk by chunk.
        data = self._incomplete.pop(stream, b"") + data
        if cut := incomplete_tail(data):
            self._incomplete[stream], data = data[-cut:], data[:-cut]
        if data:
            self._append(stream, data)

    def report(self, progress: Progress) -> None:
        """Set the progress to send next; it replaces an unsent one."""
        with self._changed:
            self._progress = progress

    def _append(self, stream: str, data: bytes) -> None:
        with self._changed:
            has_capacity = self._changed.wait_for(self._has_capacity, timeout=WRITER_FLUSH_SECONDS)
        if not has_capacity:
            # The flusher is too slow: the writer flushes, and waits for the control plane itself.
            self.flush()
        with self._changed:
            if self._error is not None:
                raise self._error
            index = self._find_chunk(stream, len(data))
            if index is None:
                self._pending.append(Chunk(self._sequence, stream, datetime.now(UTC), data))
                self._sequence += 1
                self._chunk_allowance = max(0.0, self._chunk_allowance - 1)
                self._pending_bytes += CHUNK_OVERHEAD_BYTES
            else:
                last = self._pending[index]
                self._pending[index] = Chunk(last.sequence, stream, last.logged_at, last.data + data)
            self._pending_bytes += len(data)

    def _find_chunk(self, stream: str, size: int) -> int | None:
        """Return the index of the pending chunk that this much more output joins; None: start a new chunk."""
        indexes = range(len(self._pending) - 1, -1, -1)
        index = next((n for n in indexes if self._pending[n].stream == stream), None)
        if index is None or len(self._pending[index].data) + size > CHUNK_BYTES:
            return None
        return index if index == indexes.start or not self._may_start_chunk() else None

    def _may_start_chunk(self) -> bool:
        now = time.monotonic()
        earned = (now - self._allowance_at) * MAX_CHUNKS_PER_SECOND
        self._chunk_allowance, self._allowance_at = min(MAX_BURST_CHUNKS, self._chunk_allowance + earned), now
        return self._chunk_allowance >= 1

    def _has_capacity(self) -> bool:
        return self._error is not None or self._pending_bytes < MAX_PENDING_BYTES

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    def flush(self) -> bool:
        """Send all pending output, and return whether much has been added meanwhile.

        The next flush sends that, as a run that writes without end must not keep others waiting. Errors are raised in
        the writer's thread, not here.
        """
        with self._sending:
            left = self._pending_bytes
            while True:
                batch, progress = self._take()
                if not batch and progress is None:
                    return False
                try:
                    self._send(batch, progress)
                except Exception as error:  # noqa: BLE001 - raised again in the writer's thread
                    with self._changed:
                        self._error = error
                        self._changed.notify_all()
                    return False
                left -= sum(map(_accounted_bytes, batch))
                if left <= 0:
                    return self._pending_bytes >= BATCH_BYTES

    def close(self) -> None:
        """Flush for the last time; raise if anything could not be sent."""
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
                if count and size + _accounted_bytes(chunk) > BATCH_BYTES:
                    break
                size, count = size + _accounted_bytes(chunk), count + 1
            batch, self._pending = self._pending[:count], self._pending[count:]
            self._pending_bytes -= size
            self._changed.notify_all()
            return batch, self._take_progress()

    def _take_progress(self) -> Progress | None:
        now = time.monotonic()
        if self._progress is None or (now < self._progress_due_at and not self._closing):
            return None
        progress, self._progress = self._progress, None
        self._progress_due_at = now + PROGRESS_INTERVAL_SECONDS
        return progress


def _accounted_bytes(chunk: Chunk) -> int:
    return len(chunk.data) + CHUNK_OVERHEAD_BYTES


class LogFlusher:
    """Thread that flushes every open stream a few times a second."""

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
        while not self._stopping.wait(0 if behind else FLUSH_INTERVAL_SECONDS):
            with self._lock:
                streams = list(self._streams)
            behind = sum(stream.flush() for stream in streams) > 0


def incomplete_tail(data: bytes) -> int:
    """Return how many trailing bytes start a UTF-8 character without completing it."""
    for length in range(1, min(4, len(data) + 1)):
        byte = data[-length]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length if length < needed else 0
        if byte < 0x80:
            return 0
    return 0
