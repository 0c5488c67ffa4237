"""Request bodies: limits on their total size, and who is rejected."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from scheduler_project.web.request_bodies import MAX_MEMORY_BYTES, Body, BodyNotStored, BodyReader, TooManyBodies

LARGE = 4 * MAX_MEMORY_BYTES
TURNS = 10  # of the event loop, until cancelled tasks have ended


class Client:
    """Send these bytes, then end the body or stall."""

    def __init__(self, content: bytes, *, stalls: bool = False) -> None:
        self._pieces = [content[at : at + MAX_MEMORY_BYTES] for at in range(0, len(content), MAX_MEMORY_BYTES)]
        self._stalls = stalls

    async def receive(self) -> Mapping[str, Any]:
        if not self._pieces:
            await asyncio.Event().wait()
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces) or self._stalls}

    async def send_to(self, bodies: BodyReader) -> Body:
        return await bodies.read([(b"content-length", b"1")], self.receive)


async def with_stalled_clients(bodies: BodyReader) -> list[asyncio.Task[Body]]:
    """Start bodies until no further large one fits."""
    stalled = [asyncio.create_task(Client(bytes(LARGE), stalls=True).send_to(bodies)) for _ in range(4)]
    while bodies.held_bytes < len(stalled) * (LARGE - MAX_MEMORY_BYTES):
        await asyncio.sleep(0)
    return stalled


def make_bodies() -> BodyReader:
    return BodyReader(max_bytes=2 * LARGE, total_bytes=4 * (LARGE - MAX_MEMORY_BYTES))


@pytest.mark.parametrize("size", [MAX_MEMORY_BYTES, LARGE, 2 * LARGE])
def test_stalled_large_bodies_do_not_keep_out_others(size: int) -> None:
    async def attack() -> bytes:
        bodies = make_bodies()
        stalled = await with_stalled_clients(bodies)
        with await Client(b"x" * size).send_to(bodies) as other:
            content = other.file.read()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        # Only the oldest, and no more than necessary.
        refused = [task.done() for task in stalled]
        assert refused == sorted(refused, reverse=True)
        assert refused.count(True) == {MAX_MEMORY_BYTES: 0, LARGE: 1, 2 * LARGE: 3}[size]
        for task in stalled:
            task.cancel()
        outcomes = await asyncio.gather(*stalled, return_exceptions=True)
        assert [isinstance(outcome, TooManyBodies) for outcome in outcomes] == refused
        assert bodies.held_bytes == 0
        return content

    assert asyncio.run(asyncio.wait_for(attack(), 10)) == b"x" * size


def test_complete_bodies_are_kept_and_another_large_one_is_rejected() -> None:
    async def crowd() -> None:
        bodies = make_bodies()
        kept = [await Client(bytes(LARGE)).send_to(bodies) for _ in range(4)]
        with pytest.raises(TooManyBodies):
            await Client(bytes(LARGE)).send_to(bodies)
        assert [len(body.file.read()) for body in kept] == [LARGE] * 4
        for body in kept:
            body.close()
        assert bodies.held_bytes == 0

    asyncio.run(asyncio.wait_for(crowd(), 10))


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Limit the size of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# In the middle of a piece, and when the buffer is flushed.
@pytest.mark.parametrize(
    ("most_bytes", "size"), [(2 * MAX_MEMORY_BYTES, LARGE), (MAX_MEMORY_BYTES + 1, MAX_MEMORY_BYTES + 100)]
)
def test_body_that_does_not_fit_on_disk_is_rejected(most_bytes: int, size: int) -> None:
    async def send() -> None:
        bodies = make_bodies()
        with full_disk(most_bytes), pytest.raises(BodyNotStored):
            await Client(bytes(size)).send_to(bodies)
        assert bodies.held_bytes == 0
        with await Client(bytes(size)).send_to(bodies) as body:
            assert len(body.file.read()) == size

    asyncio.run(asyncio.wait_for(send(), 10))
