"""Bridges ASGI and Django's synchronous views, so that slow clients never hold a thread.

The event loop reads the body, a thread runs the view, and the event loop writes the response. Waiting and streaming
responses run in steps: each takes a thread while it works and releases its database connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, MutableMapping
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from django.core import signals
from django.core.handlers.asgi import ASGIRequest, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.http import HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

from jobs.api.framework.deferred_response import DeferredResponse, EventLoopRequest, SteppedResponse
from jobs.api.framework.problems import Problem
from jobs.db.waiting import Pause, SharedLook
from scheduler_project.web.lanes import Lane, Lanes
from scheduler_project.web.request_bodies import Body, BodyReader, ClientDisconnected, Receive, RequestRefused
from scheduler_project.web.shared_looks import SharedLooks
from scheduler_project.web.wakeup_hub import WakeupHub, WakeupSubscription

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Result = TypeVar("Result")

# The server buffers a few pieces of a stream; a step collects about one piece.
PIECE_BYTES = 64 * 1024
# How long wake-ups are kept for a client that asks again after its wait was over.
LINGER_SECONDS = 10.0


class BufferedRequest(EventLoopRequest, ASGIRequest):
    """A request whose body has been read."""


@dataclass(frozen=True, slots=True)
class StepsFinished(Generic[Result]):
    """Return value of a finished generator of steps."""

    result: Result


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status: int
    headers: list[tuple[bytes, bytes]]


class Bridge(BaseHandler):
    def __init__(self, *, redis_url: str, max_body_bytes: int, connections: int) -> None:
        super().__init__()
        self.load_middleware()
        self._bodies = BodyReader(max_bytes=max_body_bytes)
        self._lanes = Lanes(connections)
        self._redis_url = redis_url
        self._hub: WakeupHub | None = None
        self._looks: SharedLooks | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._bodies.read(scope["headers"], receive)
            await self._respond(scope, body, receive, send)
        except RequestRefused as error:
            response = Problem(error.status, error.detail).response({"Connection": "close", "Retry-After": "2"})
            await _send_whole(_build_head(response), response.content, send)
        except ClientDisconnected:
            logger.debug("Client disconnected before its view ran")

    async def _respond(self, scope: Scope, body: Body, receive: Receive, send: Send) -> None:
        route = self._lanes.route(scope["method"], scope["path"])
        # Chunked requests have no length, and Django reads no body without one.
        scope["headers"] = _add_content_length(scope["headers"], body.size)
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            with body:
                view = partial(copy_context().run, self._run_view, scope, body)
                response, content = await route.view.run_view(view, gone)
            if content is None:
                await self._send_rest(response, route.steps, gone, send)
            else:
                await _send_whole(_build_head(response), content, send)
        finally:
            gone.cancel()

    async def _send_rest(self, response: HttpResponseBase, lane: Lane, gone: asyncio.Future[None], send: Send) -> None:
        try:
            match response:
                case DeferredResponse():
                    await self._send_deferred(response, lane, gone, send)
                case SteppedResponse():
                    await self._send_steps(response, lane, gone, send)
                case StreamingHttpResponse():
                    await _send_pieces(response, lane, gone, send)
        finally:
            await lane.run(partial(_close_response, response))

    def _run_view(self, scope: Scope, body: Body) -> tuple[HttpResponseBase, bytes | None]:
        """Run the view on a thread; return its response, and the content if it is complete."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        try:
            request = BufferedRequest(scope, body.file)
        except UnicodeDecodeError:
            response: HttpResponseBase = HttpResponseBadRequest()
        else:
            response = self.get_response(request)
        if not isinstance(response, HttpResponse):
            connections.close_all()
            return response, None
        content = response.content
        response.close()
        return response, content

    async def _send_deferred(
        self, deferred: DeferredResponse, lane: Lane, gone: asyncio.Future[None], send: Send
    ) -> None:
        response = await self._run_steps(deferred.steps, deferred.context, lane, gone, send)
        if response is not None:
            deferred.finish(response)
            await _send_whole(_build_head(response), response.content, send)

    async def _send_steps(self, response: SteppedResponse, lane: Lane, gone: asyncio.Future[None], send: Send) -> None:
        await send(_build_start_message(_build_head(response)))
        await self._run_steps(response.steps, response.context, lane, gone, send)
        await send({"type": "http.response.body", "body": b""})

    async def _run_steps(
        self,
        steps: Generator[Pause | bytes, None, Result],
        context: Context,
        lane: Lane,
        gone: asyncio.Future[None],
        send: Send,
    ) -> Result | None:
        """Return the steps' result, or None if the client is gone."""
        subscription: WakeupSubscription | None = None
        look: SharedLook | None = None
        self._hub = self._hub or WakeupHub(self._redis_url)
        self._looks = self._looks or SharedLooks(self._hub, self._lanes.looks)
        try:
            while not gone.done():
                step = await lane.run(partial(_run_step, context, steps))
                match step:
                    case StepsFinished(result):
                        return result
                    case Pause(channel, seconds):
                        if step.look is not None and look is None:
                            look = step.look
                            self._looks.join(look)
                        if subscription is None:
                            linger = 0 if look is None else LINGER_SECONDS
                            subscription = await self._hub.subscribe(channel, linger_seconds=linger)
                            step.woken = subscription.missed
                        if seconds > 0:
                            step.woken = await subscription.wait(seconds, gone)
                    case bytes(piece):
                        await _send_piece(piece, send)
            return None
        finally:
            if look is not None:
                self._looks.leave(look)
            if subscription is not None:
                subscription.close()


def _run_step(context: Context, steps: Generator[Pause | bytes, None, Result]) -> Pause | bytes | StepsFinished[Result]:
    try:
        return context.run(next, steps)
    except StopIteration as end:
        return StepsFinished(end.value)
    finally:
        connections.close_all()


async def _send_pieces(response: StreamingHttpResponse, lane: Lane, gone: asyncio.Future[None], send: Send) -> None:
    pieces = iter(response)
    context = copy_context()
    await send(_build_start_message(_build_head(response)))
    while not gone.done() and (piece := await lane.run(partial(context.run, _read_piece, pieces))):
        await _send_piece(piece, send)
    await send({"type": "http.response.body", "body": b""})


def _read_piece(pieces: Iterator[bytes]) -> bytes:
    collected, size = [], 0
    try:
        for piece in pieces:
            collected.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                break
    finally:
        connections.close_all()
    return b"".join(collected)


async def _send_piece(piece: bytes, send: Send) -> None:
    """Send in slices: the server buffers several pieces for a slow client, whatever their size."""
    for start in range(0, len(piece), PIECE_BYTES):
        await send({"type": "http.response.body", "body": piece[start : start + PIECE_BYTES], "more_body": True})


async def _send_whole(head: ResponseHead, content: bytes, send: Send) -> None:
    await send(_build_start_message(head))
    await send({"type": "http.response.body", "body": content})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _close_response(response: HttpResponseBase) -> None:
    try:
        response.close()
    finally:
        connections.close_all()


def _build_start_message(head: ResponseHead) -> dict[str, object]:
    return {"type": "http.response.start", "status": head.status, "headers": head.headers}


def _build_head(response: HttpResponseBase) -> ResponseHead:
    headers = [(name.lower().encode("ascii"), value.encode("latin1")) for name, value in response.items()]
    cookies = [
        (b"set-cookie", cookie.output(header="").lstrip().encode("ascii")) for cookie in response.cookies.values()
    ]
    return ResponseHead(response.status_code, [*headers, *cookies])


def _add_content_length(headers: list[tuple[bytes, bytes]], size: int) -> list[tuple[bytes, bytes]]:
    if not size or any(name == b"content-length" for name, _ in headers):
        return headers
    return [*headers, (b"content-length", b"%d" % size)]
