"""Combines the calls of many threads into batches: what comes while one is under way forms the next.

No thread of its own: a caller sends the batch that its call is in, then hands over to the first that waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

Call = TypeVar("Call")
Answer = TypeVar("Answer")


class _Waiting(Generic[Call, Answer]):
    def __init__(self, call: Call) -> None:
        self.call = call
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.turn: SimpleQueue[bool] = SimpleQueue()  # gets True to send the next batch, False when answered

    def result(self) -> Answer | None:
        if self.error is not None:
            raise self.error
        return self.answer


class Batcher(Generic[Call, Answer]):
    """`send` answers each call, or None; if it raises, every caller of the batch gets the error.

    `pause_seconds`: at least this long from the start of one batch to that of the next. A call that comes later than
    that after the last batch is sent at once.
    """

    def __init__(
        self, send: Callable[[Sequence[Call]], Sequence[Answer | None]], *, most: int, pause_seconds: float
    ) -> None:
        self._send = send
        self._most = most
        self._pause_seconds = pause_seconds
        self._lock = threading.Lock()
        self._waiting: list[_Waiting[Call, Answer]] = []
        self._sending = False
        self._next_at = 0.0

    def call(self, call: Call) -> Answer | None:
        own: _Waiting[Call, Answer] = _Waiting(call)
        with self._lock:
            self._waiting.append(own)
            sends, self._sending = not self._sending, True
        if sends or own.turn.get():
            self._send_next()
        return own.result()

    def _send_next(self) -> None:
        """Send a batch that begins with the call of this thread."""
        now = time.monotonic()
        if now < self._next_at:
            time.sleep(self._next_at - now)
            now = self._next_at
        self._next_at = now + self._pause_seconds
        with self._lock:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            answers = self._send([each.call for each in batch])
            for each, answer in zip(batch, answers, strict=True):
                each.answer = answer
        except BaseException as error:  # noqa: BLE001 - raised again in every caller, this one included
            for each in batch:
                each.error = error
        finally:
            for each in batch[1:]:
                each.turn.put(False)
            with self._lock:
                following = self._waiting[0] if self._waiting else None
                self._sending = following is not None
            if following is not None:
                following.turn.put(True)
