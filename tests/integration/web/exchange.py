"""One request to the ASGI application without a server, sent and received step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User

from jobs.access.tokens import generate_secret, store_token
from jobs.models import TokenScope
from scheduler_project.web.bridge import Bridge
from tests.integration.api.conftest import API

DEADLINE = 20.0


class Exchange:
    def __init__(self, method: str, address: str, headers: Mapping[str, str] | None = None) -> None:
        path, _, query = address.partition("?")
        named = {"host": "testserver", **(headers or {})}
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.lower().encode(), value.encode("latin1")) for name, value in named.items()],
            "client": ("127.0.0.1", "1"),
            "server": ("127.0.0.1", "80"),
        }
        self.sent: list[Mapping[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._incoming: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()

    def feed(self, piece: bytes, *, more: bool = False) -> None:
        self._incoming.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    def hang_up(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def run(self, bridge: Bridge) -> None:
        async with asyncio.timeout(DEADLINE):
            await bridge(self.scope, self._incoming.get, self._take)

    async def _take(self, message: Mapping[str, Any]) -> None:
        """Block like a server until the client reads."""
        await self.reads.wait()
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode("latin1") for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def until(condition: Any, what: str) -> None:
    """Wait without blocking the event loop, which the condition depends on."""
    try:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"still not: {what}") from None


def post(address: str, bearer: dict[str, str], body: dict[str, Any]) -> Exchange:
    content = json.dumps(body).encode()
    headers = {**bearer, "Content-Type": "application/json", "Content-Length": str(len(content))}
    exchange = Exchange("POST", f"{API}/{address}", headers)
    exchange.feed(content)
    return exchange


def bearer_of(user: User, scope: TokenScope = TokenScope.ADMIN) -> dict[str, str]:
    secret = generate_secret()
    store_token(owner=user, name="test", secret=secret, scope=scope)
    return {"Authorization": f"Bearer {secret}"}
