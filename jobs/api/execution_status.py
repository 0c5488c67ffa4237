"""/executions/{id}: how an execution stands, for however many ask, wait or follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from jobs import conf
from jobs.api.conditional import IF_NONE_MATCH, NOT_MODIFIED, is_known, show_rendered, tag_of_rendered
from jobs.api.event_stream import (
    LAST_EVENT_ID,
    NOTHING_MORE,
    StreamedEventOutput,
    answer_events,
    event,
    last_event_id,
)
from jobs.api.executions import executions_of
from jobs.api.fields import NumeralField, StrictSerializer
from jobs.api.representations import ExecutionOutput
from jobs.api.views import ApiView, find, read_query, user_of
from jobs.querysets.visibility import viewpoint
from jobs.services.following import await_news, take_seat
from jobs.services.status_cache import Place, read_through


class StatusQuery(StrictSerializer):
    wait = NumeralField(
        default=0,
        min_value=0,
        max_value=conf.FOLLOW_WAIT_SECONDS,
        help_text="So many seconds for its end; with `If-None-Match`, for anything to change.",
    )
    follow = serializers.BooleanField(
        default=False, help_text="A stream of events instead: `status` whenever something changes, `end` at the end."
    )


def read_status(user: User, execution_id: UUID) -> bytes:
    """As JSON, at most a second old; 404 if it is not the user's to see."""

    def read() -> bytes:
        rendered: bytes = JSONRenderer().render(ExecutionOutput(find(executions_of(user), execution_id)).data)
        return rendered

    return read_through(Place(execution_id, viewpoint(user)), read)


class ExecutionDetail(ApiView):
    @extend_schema(
        operation_id="executions_read",
        summary="Read, await or follow an execution",
        parameters=[StatusQuery, IF_NONE_MATCH, LAST_EVENT_ID],
        responses={
            (200, "application/json"): ExecutionOutput,
            (200, "text/event-stream"): StreamedEventOutput,
            204: NOTHING_MORE,
            304: NOT_MODIFIED,
        },
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponseBase:
        """At most a second old. `wait` answers at its end; `follow` streams what changes, as server-sent events."""
        query = read_query(StatusQuery, request)
        read = partial(read_status, user_of(request), execution_id)
        if query["follow"]:
            changes = _Changes(read, last_event_id(request))
            return answer_events(request, changes.look, partial(take_seat, execution_id))

        def is_news(body: bytes) -> bool:
            # What has ended does not change while one waits, though somebody may settle it later.
            return has_ended(body) or ("If-None-Match" in request.headers and _is_other(request, body))

        return show_rendered(request, await_news(execution_id, read, is_news, seconds=int(str(query["wait"]))))


class _Changes:
    def __init__(self, read: Callable[[], bytes], known: str) -> None:
        self._read = read
        self._known = known  # the id of the last event

    def look(self) -> tuple[list[bytes], bool]:
        body = self._read()
        own, ended = tag_of_rendered(body).strip('"'), has_ended(body)
        events = [] if own == self._known else [event("status", body, own)]
        self._known = own
        return [*events, end_of(body)] if ended else events, not ended


def has_ended(body: bytes) -> bool:
    return shown_in(body)["ended_at"] is not None


def shown_in(body: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(body)
    return shown


def end_of(body: bytes) -> bytes:
    shown = shown_in(body)
    return event("end", json.dumps({name: shown[name] for name in ("status", "attempt", "exit_code")}).encode())


def _is_other(request: Request, body: bytes) -> bool:
    return not is_known(request, tag_of_rendered(body))
