"""/logs/search: search lines of all visible logs. Lines are untrusted and returned as JSON only."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, cast
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.cursors import open_cursor, seal_cursor
from jobs.api.framework.fields import MAX_INT32, Fields, InstantField, OneOfField, QueryIntegerField, StrictSerializer
from jobs.api.framework.pagination import DEFAULT_LIMIT, MAX_LIMIT, build_next_path
from jobs.api.framework.query_params import RangeValidationMixin, build_results_serializer
from jobs.api.framework.views import ApiView, get_or_404, read_query, require_user
from jobs.domain.errors import InvalidInput, NotPermitted
from jobs.logs.query import MAX_QUERY_CHARACTERS, MIN_TERM_CHARACTERS, SearchMode, parse_query
from jobs.logs.search import LogSearch, SearchPosition, search_logs
from jobs.models import Job
from jobs.models.visibility import is_operator, shared_with

MAX_CURSOR_LENGTH = 300


class LogSearchQuery(RangeValidationMixin, StrictSerializer):
    q = serializers.CharField(
        trim_whitespace=False,
        help_text=f"Query of {MIN_TERM_CHARACTERS} to {MAX_QUERY_CHARACTERS} characters. A line matches if it has all "
        'words and "phrases" and no -word. With mode=substring, the query is matched literally.',
    )
    mode = OneOfField(
        [mode.value for mode in SearchMode],
        default=SearchMode.WORDS.value,
        help_text="Match whole words, or any part of a line.",
    )
    job_id = serializers.UUIDField(required=False, help_text="Filter by job.")
    to = InstantField(required=False, help_text="Only lines written until this instant.")
    stream = OneOfField(["stdout", "stderr"], required=False, help_text="Filter by stream. Default: both.")
    owner = QueryIntegerField(
        required=False, min_value=1, max_value=MAX_INT32, help_text="Staff only: filter by id of the owner."
    )
    limit = QueryIntegerField(
        default=DEFAULT_LIMIT, min_value=1, max_value=MAX_LIMIT, help_text="Maximum number of lines."
    )
    cursor = serializers.CharField(
        required=False, max_length=MAX_CURSOR_LENGTH, help_text="Cursor from the `next` of the previous page."
    )

    def get_fields(self) -> Fields:
        # `from` is a Python keyword, so it cannot be a class attribute.
        since = InstantField(required=False, help_text="Only lines written from this instant on.")
        return {**super().get_fields(), "from": since}


class LogMatchOutput(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    job_name = serializers.CharField()
    attempt = serializers.IntegerField()
    stream = serializers.ChoiceField(["stdout", "stderr"])
    sequence = serializers.IntegerField(help_text="Sequence of the chunk in which the line begins.")
    at = serializers.DateTimeField()
    line = serializers.CharField(help_text="The line; of a long one, the part around the first match.")
    matches = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2),
        help_text="Start and end of each match in `line`, in characters.",
    )


class LogsSearch(ApiView):
    @extend_schema(
        operation_id="logs_search",
        summary="Search logs",
        parameters=[LogSearchQuery],
        responses=build_results_serializer(
            LogMatchOutput,
            next=serializers.CharField(allow_null=True, help_text="Path of the next page; null on the last one."),
            complete=serializers.BooleanField(
                help_text="False if the search timed out before the page was full; continue with `next`."
            ),
            indexed_to=serializers.DateTimeField(
                allow_null=True,
                help_text="Logs stored before this instant are searchable; null before the first index.",
            ),
        ),
        description="Newest execution first, and within each the last line first.",
    )
    def get(self, request: Request) -> Response:
        query, user = read_query(LogSearchQuery, request), require_user(request)
        job_id, owner_id = cast("UUID | None", query.get("job_id")), cast("int | None", query.get("owner"))
        if owner_id not in (None, user.pk) and not is_operator(user):
            raise NotPermitted("owner", "Only staff may search the logs of others.")
        if job_id is not None:
            get_or_404(shared_with(user, Job.objects.all()), job_id)
        search = LogSearch(
            parse_query(str(query["q"]), SearchMode(str(query["mode"]))),
            owner_id,
            job_id,
            cast("datetime | None", query.get("from")),
            cast("datetime | None", query.get("to")),
            cast("str | None", query.get("stream")),
        )
        after = _decode_cursor(str(query["cursor"])) if "cursor" in query else None
        found = search_logs(user, search, limit=int(str(query["limit"])), after=after)
        position = found.next_position
        return Response(
            {
                "results": LogMatchOutput(found.lines, many=True).data,
                "next": None if position is None else build_next_path(request, _encode_cursor(position)),
                "complete": found.complete,
                "indexed_to": found.indexed_to,
            }
        )


def _encode_cursor(position: SearchPosition) -> str:
    numbers = [position.attempt, position.first_sequence, position.part, position.offset, int(position.scan_only)]
    return seal_cursor([position.day.isoformat(), position.execution_id.hex, *numbers])


def _decode_cursor(cursor: str) -> SearchPosition:
    try:
        day, execution_id, *numbers = open_cursor(cursor)
        attempt, first_sequence, part, offset, walking = (int(str(number)) for number in numbers)
        return SearchPosition(
            date.fromisoformat(str(day)), UUID(str(execution_id)), attempt, first_sequence, part, offset, bool(walking)
        )
    except ValueError:
        raise InvalidInput("cursor", "The cursor is not valid; take it from the `next` of a page.") from None
