"""Stands between a process and the object store and counts the store's answers."""

from __future__ import annotations

import asyncio
import re

from benchmarks.counting_proxy import LOOPBACK, CountingProxy, TrafficCounter, pump

ANSWER = re.compile(rb"HTTP/1\.1 [2-5]\d\d ")
ANSWERED = b"HTTP"


class StoreCounter(TrafficCounter):
    """What benchmarks store holds no line like the first of an answer."""

    def count(self, data: bytes) -> None:
        self._counted[ANSWERED] += len(ANSWER.findall(data))


class CountingStore(CountingProxy):
    """`url` is what the counted process is given instead of the store's own; what it signs is signed for that one."""

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def calls(self) -> int:
        return self._counted[ANSWERED]

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(self._target.hostname, self._target.port)
        counter = StoreCounter(self._counted)
        await asyncio.gather(pump(client, to_server, None), pump(server, to_client, counter))
