"""Reads request bodies before a thread is taken, bounded in size, time and total memory."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import TracebackType
from typing import IO, Any, Self

logger = logging.getLogger(__name__)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]

# Larger bodies go to an unnamed temporary file.
MAX_MEMORY_BYTES = 64 * 1024
# Limit for the files of all unanswered requests. Bodies in memory do not count: the number of connections bounds them,
# and large bodies must not keep out small ones, such as lease renewals.
MAX_TOTAL_BYTES = 256 * 1024**2
# Time for a whole body, extended by a second for every MIN_BYTES_PER_SECOND received.
BODY_TIMEOUT_SECONDS = 20.0
MIN_BYTES_PER_SECOND = 64 * 1024


class ClientDisconnected(Exception):
    """The client has disconnected."""


class RequestRefused(Exception):
    """The request is rejected before a view runs."""

    status: HTTPStatus
    detail: str


class BodyTooLarge(RequestRefused):
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    detail = "The request body is too large; upload programs as artifacts."


class BodyTooSlow(RequestRefused):
    status = HTTPStatus.REQUEST_TIMEOUT
    detail = "The request body did not arrive in time; send the request again."


class TooManyBodies(RequestRefused):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    detail = "The server is processing too many large request bodies; try again in a moment."


class BodyNotStored(RequestRefused):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    detail = "The server could not store the request body; try again in a moment."


class BodyReader:
    """Reads bodies and accounts for all that this process holds for unanswered requests."""

    def __init__(self, *, max_bytes: int, total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._total_bytes = total_bytes
        self._incomplete: dict[Body, asyncio.Timeout] = {}  # oldest first
        self.held_bytes = 0

    async def read(self, headers: Iterable[tuple[bytes, bytes]], receive: Receive) -> Body:
        header_values = dict(headers)
        length = header_values.get(b"content-length", b"0")
        if b"transfer-encoding" not in header_values and length == b"0":
            return Body(self)
        if length.isdigit() and int(length) > self._max_bytes:
            raise BodyTooLarge
        body = Body(self)
        try:
            await self._fill(body, receive)
            body.rewind()
        except BaseException:
            body.close()
            raise
        finally:
            self._incomplete.pop(body, None)
        return body

    async def _fill(self, body: Body, receive: Receive) -> None:
        began, more = time.monotonic(), True
        while more:
            left = began + BODY_TIMEOUT_SECONDS + body.size / MIN_BYTES_PER_SECOND - time.monotonic()
            try:
                async with asyncio.timeout(left) as timeout:
                    self._incomplete[body] = timeout
                    message = await receive()
            except TimeoutError:
                raise (TooManyBodies if body.is_closed else BodyTooSlow) from None
            if body.is_closed:
                raise TooManyBodies
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece, more = message.get("body", b""), message.get("more_body", False)
            if body.size + len(piece) > self._max_bytes:
                raise BodyTooLarge
            body.append(piece)
            if body.counted:
                self._enforce_total(body)

    def _enforce_total(self, newest: Body) -> None:
        """Drop the oldest incomplete bodies, so that stalled clients cannot keep out others."""
        for body, timeout in list(self._incomplete.items()):
            if self.held_bytes <= self._total_bytes or body is newest:
                break
            if body.counted:
                body.close()
                # An expired timeout cannot be rescheduled, and its body is rejected anyway.
                if not timeout.expired():
                    timeout.reschedule(asyncio.get_running_loop().time())
        if self.held_bytes > self._total_bytes:
            raise TooManyBodies


@contextmanager
def _translate_storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        logger.warning("Rejected a request body that could not be stored: %s", error)
        raise BodyNotStored from error


class Body:
    def __init__(self, reader: BodyReader) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES)  # noqa: SIM115 - closed with the body
        self.size = 0
        self._reader = reader

    @property
    def is_closed(self) -> bool:
        return self.file.closed

    @property
    def counted(self) -> int:
        return max(self.size - MAX_MEMORY_BYTES, 0)

    def append(self, piece: bytes) -> None:
        with _translate_storage_errors():
            self.file.write(piece)
        before = self.counted
        self.size += len(piece)
        self._reader.held_bytes += self.counted - before

    def rewind(self) -> None:
        with _translate_storage_errors():
            self.file.seek(0)

    def close(self) -> None:
        # Closing flushes the buffer, for which the disk may have no space.
        with suppress(OSError):
            self.file.close()
        self._reader.held_bytes -= self.counted
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
