"""Server-sent events, for a browser's EventSource as for `curl -N`.

A stream occupies one place in the waiter pool and ends after a while: the client reconnects with the id of the last
event and misses nothing. When the pool is full, the stream sends the current state and ends at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from jobs.api.framework.authentication import BearerTokenAuthentication, check_session
from jobs.api.framework.deferred_response import SteppedResponse
from jobs.db.waiting import StreamedSteps
from jobs.domain import limits
from jobs.domain.errors import PunctualError
from jobs.execution.waiters import Waiter

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/event-stream"
# A comment: it keeps proxies from hanging up, and lets the server notice a client that has left.
HEARTBEAT = b":\n\n"
SESSION_CHECK_INTERVAL_SECONDS = 1.0
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID", str, OpenApiParameter.HEADER, description="With `follow`: the id of the last event you received."
)
STREAM_ENDED = OpenApiResponse(
    description="With `follow`: the stream has ended and you have all of it; do not reconnect."
)


class StreamedEventOutput(serializers.Serializer[Any]):
    """One server-sent event."""

    event = serializers.CharField(help_text="Kind of event; `end` is always the last one.")
    data = serializers.CharField(help_text="JSON on one line.")  # type: ignore[assignment]  # DRF removes declared fields
    id = serializers.CharField(required=False, help_text="Value for `Last-Event-ID` on reconnect.")


# The events available now, and whether more will follow; the last one is `end`.
PolledEvents = tuple[list[bytes], bool]
PollEvents = Callable[[], PolledEvents]


def format_event(kind: str, data: bytes, event_id: str | None = None) -> bytes:
    """Format one event; `data` is JSON without line breaks."""
    id_line = b"" if event_id is None else f"id: {event_id}\n".encode()
    return b"%sevent: %s\ndata: %s\n\n" % (id_line, kind.encode(), data)


def read_last_event_id(request: Request) -> str:
    return str(request.headers.get("Last-Event-ID", ""))


def respond_with_events(request: Request, poll: PollEvents, acquire: Callable[[], Waiter | None]) -> HttpResponseBase:
    """Return a stream of events; an error of the first poll becomes a problem response."""
    events, more = first = poll()
    if read_last_event_id(request) and not more and len(events) == 1:
        # 204 makes an EventSource stop reconnecting.
        return HttpResponse(status=status.HTTP_204_NO_CONTENT)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
    if request.method == "HEAD":
        return StreamingHttpResponse((), content_type=CONTENT_TYPE, headers=headers)
    waiter = acquire() if more else None
    steps = _generate_events(first, _recheck_access(request, poll), waiter)
    abandon = waiter.leave if waiter is not None else steps.close
    return SteppedResponse(steps, abandon=abandon, content_type=CONTENT_TYPE, headers=headers)


def _recheck_access(request: Request, poll: PollEvents) -> PollEvents:
    """Return a poll that fails once the client's token is revoked or its session has ended."""
    checked_at = time.monotonic()

    def poll_if_allowed() -> PolledEvents:
        nonlocal checked_at
        # Token lookups are cached; session lookups are not.
        BearerTokenAuthentication().authenticate(request)
        if time.monotonic() - checked_at >= SESSION_CHECK_INTERVAL_SECONDS:
            check_session(request)
            checked_at = time.monotonic()
        return poll()

    return poll_if_allowed


def _generate_events(first: PolledEvents, poll: PollEvents, waiter: Waiter | None) -> StreamedSteps:
    deadline = time.monotonic() + limits.FOLLOW_STREAM_SECONDS
    sent_at = time.monotonic()
    events, more = first
    yield b"".join([b"retry: %d\n\n" % (limits.FOLLOW_RECONNECT_SECONDS * 1000), *events])
    if waiter is None:
        return
    try:
        yield waiter.listen()
        while more and (left := deadline - time.monotonic()) > 0:
            # The first poll after `listen` catches events between the initial poll and the subscription.
            events, more = poll()
            if events:
                yield b"".join(events)
                sent_at = time.monotonic()
                continue
            if time.monotonic() - sent_at >= limits.FOLLOW_HEARTBEAT_SECONDS:
                yield HEARTBEAT
                sent_at = time.monotonic()
            yield waiter.pause(left)
    except (Http404, APIException, PunctualError, OperationalError, InterfaceError) as error:
        # The status line is sent already, so the stream just ends; the client's next request gets the error.
        logger.warning("Event stream ended early: %s", error)
    finally:
        waiter.leave()
