"""/executions/{id}: read, await or follow one execution, through a cache shared by all clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from jobs.api.framework.conditional import (
    IF_NONE_MATCH,
    NOT_MODIFIED,
    compute_rendered_etag,
    matches_if_none_match,
    respond_conditionally_rendered,
)
from jobs.api.framework.event_stream import (
    LAST_EVENT_ID,
    STREAM_ENDED,
    StreamedEventOutput,
    format_event,
    read_last_event_id,
    respond_with_events,
)
from jobs.api.framework.fields import QueryIntegerField, StrictSerializer
from jobs.api.framework.views import ApiView, get_or_404, read_query, require_user
from jobs.api.resources.executions.executions import list_visible_executions
from jobs.api.resources.representations import ExecutionOutput
from jobs.db.waiting import Steps
from jobs.domain import limits
from jobs.execution.status_cache import CacheEntryKey, read_through
from jobs.execution.waiters import acquire_waiter, await_change
from jobs.models.visibility import visibility_key


class StatusQuery(StrictSerializer):
    wait = QueryIntegerField(
        default=0,
        min_value=0,
        max_value=limits.FOLLOW_WAIT_SECONDS,
        help_text="Wait up to this many seconds for the end; with `If-None-Match`, for any change.",
    )
    follow = serializers.BooleanField(
        default=False, help_text="Stream server-sent events: `status` for every change, then `end`."
    )


def read_status(user: User, execution_id: UUID) -> bytes:
    """Return the execution as JSON, at most a second old; 404 if the user may not see it."""

    def read() -> bytes:
        rendered: bytes = JSONRenderer().render(
            ExecutionOutput(get_or_404(list_visible_executions(user), execution_id)).data
        )
        return rendered

    return read_through(CacheEntryKey(execution_id, visibility_key(user)), read)


class ExecutionDetail(ApiView):
    @extend_schema(
        operation_id="executions_read",
        summary="Read, await or follow an execution",
        parameters=[StatusQuery, IF_NONE_MATCH, LAST_EVENT_ID],
        responses={
            (200, "application/json"): ExecutionOutput,
            (200, "text/event-stream"): StreamedEventOutput,
            204: STREAM_ENDED,
            304: NOT_MODIFIED,
        },
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponseBase:
        """Read an execution; the data is at most a second old.

        `wait` delays the response until the execution ends; `follow` streams changes as server-sent events.
        """
        query = read_query(StatusQuery, request)
        read = partial(read_status, require_user(request), execution_id)
        if query["follow"]:
            changes = _StatusEvents(read, read_last_event_id(request))
            return respond_with_events(request, changes.poll, partial(acquire_waiter, execution_id))

        def is_awaited(body: bytes) -> bool:
            # Waiting for a change of a finished execution is pointless, even if a dead letter may be resolved later.
            return has_ended(body) or ("If-None-Match" in request.headers and _has_changed(request, body))

        def await_status() -> Steps[HttpResponse]:
            body = yield from await_change(execution_id, read, is_awaited, seconds=int(str(query["wait"])))
            return respond_conditionally_rendered(request, body)

        return self.respond_later(request, await_status())


class _StatusEvents:
    def __init__(self, read: Callable[[], bytes], last_event_id: str) -> None:
        self._read = read
        self._last_event_id = last_event_id

    def poll(self) -> tuple[list[bytes], bool]:
        body = self._read()
        event_id, ended = compute_rendered_etag(body).strip('"'), has_ended(body)
        events = [] if event_id == self._last_event_id else [format_event("status", body, event_id)]
        self._last_event_id = event_id
        return [*events, format_end_event(body)] if ended else events, not ended


def has_ended(body: bytes) -> bool:
    return parse_representation(body)["ended_at"] is not None


def parse_representation(body: bytes) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(body)
    return values


def format_end_event(body: bytes) -> bytes:
    values = parse_representation(body)
    return format_event("end", json.dumps({name: values[name] for name in ("status", "attempt", "exit_code")}).encode())


def _has_changed(request: Request, body: bytes) -> bool:
    return not matches_if_none_match(request, compute_rendered_etag(body))
