"""Takes messages off Redis lists the moment they arrive and notes when that was.

Its clock is this machine's, the one by which instants are due; a blocked reader costs Redis nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import cast

import redis

BLOCK_SECONDS = 0.5
AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Arrival:
    at: float
    headers: Mapping[str, object]


class Receiver:
    def __init__(self, redis_url: str, lists: Sequence[str]) -> None:
        self._lists = lists
        self._client = redis.Redis.from_url(redis_url)
        self._raw: list[tuple[float, list[bytes]]] = []
        self._read = 0
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._receive, name="receiver", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()
        self._client.close()

    def arrivals(self) -> Iterator[Arrival]:
        """What arrived since this was last asked. Read here, not on arrival: reading takes longer than taking."""
        if self._error is not None:
            raise self._error
        while self._read < len(self._raw):
            at, messages = self._raw[self._read]
            self._raw[self._read] = (at, [])
            self._read += 1
            for message in messages:
                yield Arrival(at, json.loads(message)["headers"])

    def _receive(self) -> None:
        try:
            while not self._left.is_set():
                answer = self._client.blmpop(
                    BLOCK_SECONDS, len(self._lists), *self._lists, direction="RIGHT", count=AT_ONCE
                )
                at = time.time()
                if answer is not None:
                    _, messages = cast("tuple[bytes, list[bytes]]", answer)
                    self._raw.append((at, messages))
        except Exception as error:  # noqa: BLE001 - raised where the arrivals are read
            self._error = error
