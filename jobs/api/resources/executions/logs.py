"""/executions/{id}/logs: output of a program, as text, chunks or a stream of events.

The bytes are untrusted: they are never served as a type that a browser would interpret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from uuid import UUID

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.waiter_pool import WaiterPool
from jobs.api.framework.event_stream import (
    LAST_EVENT_ID,
    STREAM_ENDED,
    StreamedEventOutput,
    read_last_event_id,
    respond_with_events,
)
from jobs.api.framework.fields import MAX_INT32, OneOfField, QueryIntegerField, StrictSerializer
from jobs.api.framework.query_params import build_results_serializer
from jobs.api.framework.views import ApiView, get_or_404, read_query, require_user
from jobs.api.resources.executions.execution_status import read_status
from jobs.api.resources.executions.executions import list_visible_executions
from jobs.api.resources.executions.log_stream import LogReader, represent_chunk
from jobs.api.resources.representations import LogChunkOutput
from jobs.api.worker_protocol.runs import append_logs
from jobs.db.waiting import Steps
from jobs.domain import limits
from jobs.domain.errors import NotFound, TooManyDownloads
from jobs.execution.waiters import acquire_waiter
from jobs.logs.store import Page, await_page, read_chunks

READ_FAILURE_NOTICE = b"\n[punctual: the rest of this log could not be read; try again]\n"


class LogQuery(StrictSerializer):
    attempt = QueryIntegerField(
        required=False, min_value=1, max_value=MAX_INT32, help_text="Number of the attempt. Default: the latest."
    )
    after = QueryIntegerField(
        default=-1, min_value=-1, max_value=MAX_INT32, help_text="Return only chunks after this sequence."
    )
    stream = OneOfField(["stdout", "stderr"], required=False, help_text="Filter by stream. Default: both.")
    format = OneOfField(["text", "json"], default="text", help_text="`text`, or `json` for chunks with their times.")
    wait = QueryIntegerField(
        default=0,
        min_value=0,
        max_value=limits.FOLLOW_WAIT_SECONDS,
        help_text="With `json`: wait up to this many seconds for new output, unless the attempt has ended.",
    )
    follow = serializers.BooleanField(
        default=False,
        help_text="Stream server-sent events: `log` for every chunk. Without `attempt`, continue with later attempts.",
    )


class ExecutionLogs(ApiView):
    @extend_schema(
        operation_id="executions_logs",
        summary="Read or follow a log",
        parameters=[LogQuery, LAST_EVENT_ID],
        responses={
            204: STREAM_ENDED,
            (200, "text/event-stream"): StreamedEventOutput,
            (200, "text/plain"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiResponse(
                build_results_serializer(
                    LogChunkOutput,
                    next=serializers.IntegerField(help_text="Value of `after` for the next page."),
                    attempt=serializers.IntegerField(help_text="Number of the attempt; 0 before the first one."),
                    ended=serializers.BooleanField(
                        help_text="Whether the attempt has ended. If so, an empty page is the end of the log."
                    ),
                )
            ),
        },
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponseBase:
        """Read the log as text, as chunks with `format=json`, or as server-sent events with `follow`."""
        query = read_query(LogQuery, request)
        execution = get_or_404(list_visible_executions(require_user(request)), execution_id)
        after, seconds = int(str(query["after"])), int(str(query["wait"]))
        attempt = int(str(query["attempt"])) if "attempt" in query else None
        stream = str(query["stream"]) if "stream" in query else None
        if attempt is not None and attempt > execution.attempt:
            raise NotFound(f"This execution has no attempt {attempt}.")
        if query["follow"]:
            read = partial(read_status, require_user(request), execution_id)
            reader = LogReader(execution_id, read, attempt, after, stream, only_this_attempt=attempt is not None)
            reader.resume(read_last_event_id(request))
            return respond_with_events(request, reader.poll, partial(acquire_waiter, execution_id))
        if query["format"] == "json":

            def read_page() -> Steps[HttpResponse]:
                page = yield from await_page(execution_id, attempt, after=after, stream=stream, seconds=seconds)
                if seconds:
                    # The user may have lost access while waiting.
                    get_or_404(list_visible_executions(require_user(request)), execution_id)
                return _build_json_response(page, after)

            return self.respond_later(request, read_page())
        headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
        content = _Download(require_user(request).pk)
        # For HEAD, the server would read the whole log and discard it.
        if request.method != "HEAD":
            content.begin(_read_pieces(execution_id, attempt, after, stream))
        return StreamingHttpResponse(content, content_type="text/plain; charset=utf-8", headers=headers)

    post = append_logs


class _Download:
    """The text of a log, which counts as one of the user's downloads until the server closes it."""

    def __init__(self, user_id: int) -> None:
        self._user_id = user_id
        self._pieces: Iterator[bytes] = iter(())
        self._counted = False

    def begin(self, pieces: Iterator[bytes]) -> None:
        """Read the first piece, so that an error before it becomes a problem response."""
        self._counted = get_download_slots().acquire(self._user_id)
        if not self._counted:
            raise TooManyDownloads
        try:
            self._pieces = _append_failure_notice(list(islice(pieces, 1)), pieces)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def close(self) -> None:
        if self._counted:
            self._counted = False
            get_download_slots().release(self._user_id)


@lru_cache(maxsize=1)
def get_download_slots() -> WaiterPool:
    return WaiterPool(limits.MAX_LOG_DOWNLOADS, limits.MAX_LOG_DOWNLOADS_PER_USER)


def _read_pieces(execution_id: UUID, attempt: int | None, after: int, stream: str | None) -> Iterator[bytes]:
    return (chunk.data for chunk in read_chunks(execution_id, attempt, after=after, stream=stream))


def _append_failure_notice(first: Sequence[bytes], pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Append a notice if reading fails, because the truncated response would look complete."""
    yield from first
    try:
        yield from pieces
    except Exception:
        yield READ_FAILURE_NOTICE
        raise


def _build_json_response(page: Page, after: int) -> Response:
    return Response(
        {
            "results": LogChunkOutput([represent_chunk(chunk) for chunk in page.chunks], many=True).data,
            "next": page.chunks[-1].sequence if page.chunks else after,
            "attempt": page.status.attempt,
            "ended": page.status.ended,
        }
    )
