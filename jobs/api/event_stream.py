"""Server-sent events: an answer that goes on, of which a browser's EventSource and `curl -N` make the same.

A stream holds a seat among those who wait and ends by itself after a while: whoever follows asks again, with the id of
the last event, and misses nothing. Without a seat it tells how things stand and ends at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers, status
from rest_framework.request import Request

from jobs import conf
from jobs.api.authentication import BearerTokenAuthentication
from jobs.errors import PunctualError
from jobs.services.database import give_back
from jobs.services.following import Seat

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/event-stream"
# Nothing is said: it keeps proxies from hanging up, and tells the server when nobody listens any more.
HEARTBEAT = b":\n\n"
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID", str, OpenApiParameter.HEADER, description="With `follow`: the id of the last event that you have."
)
NOTHING_MORE = OpenApiResponse(description="With `follow`: it has ended, and you have all of it. Do not ask again.")


class StreamedEventOutput(serializers.Serializer[Any]):
    """One of the stream's events."""

    event = serializers.CharField(help_text="What it tells of; the last of all is `end`.")
    data = serializers.CharField(help_text="JSON, in one line.")  # type: ignore[assignment]  # DRF takes fields out
    id = serializers.CharField(required=False, help_text="For `Last-Event-ID`.")


# The events that there are now, and whether there will be more; the last of all is `end`.
Seen = tuple[list[bytes], bool]
Look = Callable[[], Seen]


def event(kind: str, data: bytes, event_id: str | None = None) -> bytes:
    """`data` is JSON, which has no line breaks."""
    marked = b"" if event_id is None else f"id: {event_id}\n".encode()
    return b"%sevent: %s\ndata: %s\n\n" % (marked, kind.encode(), data)


def last_event_id(request: Request) -> str:
    return str(request.headers.get("Last-Event-ID", ""))


def answer_events(request: Request, look: Look, take_seat: Callable[[], Seat | None]) -> HttpResponseBase:
    """What fails at once is answered as a problem."""
    events, more = first = look()
    if last_event_id(request) and not more and len(events) == 1:
        # What makes an EventSource stop asking again.
        return HttpResponse(status=status.HTTP_204_NO_CONTENT)
    # Our server would read it all and throw it away.
    look_again = _admitted(request, look)
    content = () if request.method == "HEAD" else _Events(first, look_again, take_seat() if more else None)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
    return StreamingHttpResponse(content, content_type=CONTENT_TYPE, headers=headers)


def _admitted(request: Request, look: Look) -> Look:
    """Whoever may not ask any more, for their token was revoked or has expired, sees nothing more a second later."""

    def look_again() -> Seen:
        BearerTokenAuthentication().authenticate(request)
        return look()

    return look_again


class _Events:
    """The server closes it also when nothing of it was read, which a generator would not notice."""

    def __init__(self, first: Seen, look: Look, seat: Seat | None) -> None:
        self._seat = seat
        self._events = _follow(first, look, seat)

    def __iter__(self) -> Iterator[bytes]:
        return self._events

    def close(self) -> None:
        self._events.close()
        if self._seat is not None:
            self._seat.leave()


def _follow(first: Seen, look: Look, seat: Seat | None) -> Generator[bytes]:
    deadline = time.monotonic() + conf.FOLLOW_STREAM_SECONDS
    said_at = time.monotonic()
    events, more = first
    give_back()
    yield b"".join([b"retry: %d\n\n" % (conf.FOLLOW_AGAIN_SECONDS * 1000), *events])
    try:
        while more and seat is not None and (left := deadline - time.monotonic()) > 0:
            # What came between the first look and the seat is seen by the second, before anybody waits.
            events, more = look()
            # Who reads slowly holds no connection meanwhile.
            give_back()
            if events:
                yield b"".join(events)
                said_at = time.monotonic()
                continue
            if time.monotonic() - said_at >= conf.FOLLOW_HEARTBEAT_SECONDS:
                yield HEARTBEAT
                said_at = time.monotonic()
            seat.wait(left)
    except (Http404, PunctualError, OperationalError, InterfaceError) as error:
        # It has begun, so it can only end; whoever asks again is told.
        logger.warning("A stream of events ended early: %s", error)
