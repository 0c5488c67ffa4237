"""Stands between a process and Postgres and counts what Postgres answers: statements and round trips.

A statement is one that Postgres has executed, BEGIN and COMMIT included; a round trip ends when Postgres says that it
is ready for the next, whatever was asked in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

LOOPBACK = "127.0.0.1"
READ_BYTES = 64 * 1024
START_SECONDS = 10
# What a client may ask before it begins: encryption, by TLS or by GSS. Postgres answers with one byte and listens on.
ASKS_FOR_ENCRYPTION = {80877103, 80877104}
EXECUTED, READY = b"C", b"Z"


@dataclass(frozen=True, slots=True)
class Answered:
    statements: int
    round_trips: int

    def __sub__(self, before: Answered) -> Answered:
        return Answered(self.statements - before.statements, self.round_trips - before.round_trips)


class TrafficCounter:
    """Follows one connection's answers, each a letter, a length that includes itself, and the rest."""

    def __init__(self, counted: Counter[bytes]) -> None:
        self._counted = counted
        self._received = b""

    def count(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 5:
            length = 1 + int.from_bytes(self._received[1:5])
            if len(self._received) < length:
                return
            self._counted[self._received[:1]] += 1
            self._received = self._received[length:]


class CountingProxy:
    """`url` is what the counted process is given instead of the database's own."""

    def __init__(self, database_url: str) -> None:
        self._target = urlsplit(database_url)
        self._counted: Counter[bytes] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="counting-proxy", daemon=True)
        self._port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise SystemExit("The counting proxy did not start.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self) -> str:
        credentials = self._target.netloc.rpartition("@")[0]
        return urlunsplit(self._target._replace(netloc=f"{credentials}@{LOOPBACK}:{self._port}"))

    def answered(self) -> Answered:
        return Answered(self._counted[EXECUTED], self._counted[READY])

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, LOOPBACK, 0))
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(self._target.hostname, self._target.port)
        while True:
            opening = await client.readexactly(8)
            to_server.write(opening)
            if int.from_bytes(opening[4:]) not in ASKS_FOR_ENCRYPTION:
                break
            to_client.write(await server.readexactly(1))
        counter = TrafficCounter(self._counted)
        await asyncio.gather(pump(client, to_server, None), pump(server, to_client, counter))


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, counter: TrafficCounter | None) -> None:
    try:
        while data := await source.read(READ_BYTES):
            if counter is not None:
                counter.count(data)
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()
