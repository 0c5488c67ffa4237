"""/executions/{id}/logs: what a program wrote, as text or as chunks.

The bytes are the program's and untrusted: they are never served as anything that a browser would interpret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from uuid import UUID

from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.event_stream import LAST_EVENT_ID, NOTHING_MORE, StreamedEventOutput, answer_events, last_event_id
from jobs.api.execution_status import read_status
from jobs.api.executions import executions_of
from jobs.api.fields import NumeralField, OneOfField, StrictSerializer
from jobs.api.log_stream import LogReader, show_chunk
from jobs.api.queries import results_of
from jobs.api.representations import LogChunkOutput
from jobs.api.views import ApiView, find, read_query, user_of
from jobs.errors import NotFound
from jobs.services.following import take_seat
from jobs.services.log_following import await_page
from jobs.services.logs import Page, read_chunks

BROKEN_OFF = b"\n[punctual: the rest of this log could not be read; ask again]\n"


class LogQuery(StrictSerializer):
    attempt = NumeralField(required=False, min_value=1, max_value=2**31 - 1, help_text="Default: the latest.")
    after = NumeralField(default=-1, min_value=-1, max_value=2**31 - 1, help_text="Only what follows this sequence.")
    stream = OneOfField(["stdout", "stderr"], required=False, help_text="Only this one; default: both.")
    format = OneOfField(["text", "json"], default="text", help_text="`json`: chunks with their times.")
    wait = NumeralField(
        default=0,
        min_value=0,
        max_value=conf.FOLLOW_WAIT_SECONDS,
        help_text="Of `json`: so many seconds for something to come, unless the attempt has ended.",
    )
    follow = serializers.BooleanField(
        default=False,
        help_text="A stream of events instead: `log` for every chunk, also of attempts to come if none is named.",
    )


class ExecutionLogs(ApiView):
    @extend_schema(
        operation_id="executions_logs",
        summary="Read or follow a log",
        parameters=[LogQuery, LAST_EVENT_ID],
        responses={
            204: NOTHING_MORE,
            (200, "text/event-stream"): StreamedEventOutput,
            (200, "text/plain"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiResponse(
                results_of(
                    LogChunkOutput,
                    next=serializers.IntegerField(help_text="The sequence to ask `after` for what comes next."),
                    attempt=serializers.IntegerField(help_text="Whose log it is; 0: there is none yet."),
                    ended=serializers.BooleanField(
                        help_text="Nothing more is written: once a page is empty, all has been read."
                    ),
                )
            ),
        },
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponseBase:
        """As text; with `format=json` as chunks; with `follow` as server-sent events, until it has ended."""
        query = read_query(LogQuery, request)
        execution = find(executions_of(user_of(request)), execution_id)
        after, seconds = int(str(query["after"])), int(str(query["wait"]))
        attempt = int(str(query["attempt"])) if "attempt" in query else None
        stream = str(query["stream"]) if "stream" in query else None
        if attempt is not None and attempt > execution.attempt:
            raise NotFound(f"There is no attempt {attempt} of this execution.")
        if query["follow"]:
            read = partial(read_status, user_of(request), execution_id)
            reader = LogReader(execution_id, read, attempt, after, stream, only_this_attempt=attempt is not None)
            reader.resume(last_event_id(request))
            return answer_events(request, reader.look, partial(take_seat, execution_id))
        if query["format"] == "json":
            page = await_page(execution_id, attempt, after=after, stream=stream, seconds=seconds)
            if seconds:
                # Whoever could see it when the wait began.
                find(executions_of(user_of(request)), execution_id)
            return _as_json(page, after)
        # Our server would read it all and throw it away.
        asked_for = request.method != "HEAD"
        return StreamingHttpResponse(
            _begin(_pieces(execution_id, attempt, after, stream)) if asked_for else (),
            content_type="text/plain; charset=utf-8",
            headers={"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"},
        )


def _pieces(execution_id: UUID, attempt: int | None, after: int, stream: str | None) -> Iterator[bytes]:
    return (chunk.data for chunk in read_chunks(execution_id, attempt, after=after, stream=stream))


def _begin(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What fails before the first piece is answered as a problem; what fails later is said where the log breaks off.

    The server would end such an answer as if it were whole.
    """
    return _tell_break(list(islice(pieces, 1)), pieces)


def _tell_break(first: Sequence[bytes], pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield from first
    try:
        yield from pieces
    except Exception:
        yield BROKEN_OFF
        raise


def _as_json(page: Page, after: int) -> Response:
    return Response(
        {
            "results": LogChunkOutput([show_chunk(chunk) for chunk in page.chunks], many=True).data,
            "next": page.chunks[-1].sequence if page.chunks else after,
            "attempt": page.standing.attempt,
            "ended": page.standing.ended,
        }
    )
