"""/logs/search: lines of all logs that one may see. What programs wrote is data here, in JSON, and never markup."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import date, datetime
from typing import Any, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import InstantField, NumeralField, OneOfField, StrictSerializer
from jobs.api.pagination import DEFAULT_LIMIT, MAX_LIMIT, next_path
from jobs.api.queries import Ranges, results_of
from jobs.api.views import ApiView, find, read_query, user_of
from jobs.errors import InvalidInput, NotPermitted
from jobs.log_query import MAX_CHARACTERS, MIN_CHARACTERS, Mode, parse_query
from jobs.models import Job
from jobs.querysets.visibility import shared_with
from jobs.services.log_search import LogSearch, Position, search_logs

MAX_CURSOR_LENGTH = 300
# What the database holds in these columns.
MAX_NUMBER = 2**31 - 1


class LogSearchQuery(Ranges, StrictSerializer):
    q = serializers.CharField(
        trim_whitespace=False,
        help_text=f"{MIN_CHARACTERS} to {MAX_CHARACTERS} characters: words and "
        '"phrases" that stand on one line, -word for one that must not; with mode=substring, taken as it is written.',
    )
    mode = OneOfField(
        [mode.value for mode in Mode], default=Mode.WORDS.value, help_text="Whole words, or any part of a line."
    )
    job_id = serializers.UUIDField(required=False, help_text="Only logs of this job.")
    to = InstantField(required=False, help_text="Only lines written until then.")
    stream = OneOfField(["stdout", "stderr"], required=False, help_text="Only this one; default: both.")
    owner = NumeralField(required=False, min_value=1, max_value=MAX_NUMBER, help_text="Of this user only; for staff.")
    limit = NumeralField(default=DEFAULT_LIMIT, min_value=1, max_value=MAX_LIMIT, help_text="At most so many lines.")
    cursor = serializers.CharField(
        required=False, max_length=MAX_CURSOR_LENGTH, help_text="From the `next` of the page before."
    )

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # A field of this name cannot be declared: it is a word of the language.
        since = InstantField(required=False, help_text="Only lines written from then on.")
        return {**super().get_fields(), "from": since}


class FoundLineOutput(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    job_name = serializers.CharField()
    attempt = serializers.IntegerField()
    stream = serializers.ChoiceField(["stdout", "stderr"])
    sequence = serializers.IntegerField(help_text="Of the chunk in which the line begins.")
    at = serializers.DateTimeField()
    line = serializers.CharField(help_text="Of a long line the part around the first match.")
    matches = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2),
        help_text="Where each match begins and ends in `line`, in characters.",
    )


class LogsSearch(ApiView):
    @extend_schema(
        operation_id="logs_search",
        summary="Search logs",
        parameters=[LogSearchQuery],
        responses=results_of(
            FoundLineOutput,
            next=serializers.CharField(allow_null=True, help_text="The path of the next page; null: nothing is left."),
            complete=serializers.BooleanField(
                help_text="False: the time of this request was up before the page was full; `next` goes on."
            ),
            indexed_to=serializers.DateTimeField(
                allow_null=True, help_text="What was stored before it is found; null: nothing was indexed yet."
            ),
        ),
        description="The newest execution first, and of each the last line first.",
    )
    def get(self, request: Request) -> Response:
        query, user = read_query(LogSearchQuery, request), user_of(request)
        job_id, owner_id = cast("UUID | None", query.get("job_id")), cast("int | None", query.get("owner"))
        if owner_id not in (None, user.pk) and not user.is_staff:
            raise NotPermitted("owner", "Only staff may search the logs of others.")
        if job_id is not None:
            find(shared_with(user, Job.objects.all()), job_id)
        search = LogSearch(
            parse_query(str(query["q"]), Mode(str(query["mode"]))),
            owner_id,
            job_id,
            cast("datetime | None", query.get("from")),
            cast("datetime | None", query.get("to")),
            cast("str | None", query.get("stream")),
        )
        after = _decode(str(query["cursor"])) if "cursor" in query else None
        found = search_logs(user, search, limit=int(str(query["limit"])), after=after)
        return Response(
            {
                "results": FoundLineOutput(found.lines, many=True).data,
                "next": None if found.following is None else next_path(request, _encode(found.following)),
                "complete": found.complete,
                "indexed_to": found.indexed_to,
            }
        )


def _encode(position: Position) -> str:
    numbers = [position.attempt, position.first_sequence, position.part, position.offset, int(position.walking)]
    told = json.dumps([position.day.isoformat(), position.execution_id.hex, *numbers])
    return base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")


def _decode(cursor: str) -> Position:
    try:
        day, execution_id, *numbers = json.loads(base64.urlsafe_b64decode(cursor + "=="))
        attempt, first_sequence, part, offset, walking = (int(str(number)) for number in numbers)
        position = Position(
            date.fromisoformat(day), UUID(execution_id), attempt, first_sequence, part, offset, bool(walking)
        )
        if all(-1 <= number <= MAX_NUMBER for number in (attempt, first_sequence, part, offset)):
            return position
    except (ValueError, TypeError, AttributeError, RecursionError, binascii.Error):
        pass
    raise InvalidInput("cursor", "The cursor is not valid; take it from the `next` of a page.")
