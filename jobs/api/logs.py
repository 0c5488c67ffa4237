"""/executions/{id}/logs: what a program wrote, as text or as chunks.

The bytes are the program's and untrusted: they are never served as anything that a browser would interpret.
"""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.executions import executions_of
from jobs.api.fields import StrictSerializer
from jobs.api.queries import results_of
from jobs.api.representations import LogChunkOutput
from jobs.api.views import ApiView, find, read_query, user_of
from jobs.models import Attempt
from jobs.protocol import Chunk
from jobs.services.logs import read_chunks

MAX_CHUNKS = 1000


class LogQuery(StrictSerializer):
    attempt = serializers.IntegerField(
        required=False, min_value=1, max_value=2**31 - 1, help_text="Default: the latest."
    )
    after = serializers.IntegerField(
        default=-1, min_value=-1, max_value=2**31 - 1, help_text="Only what follows this sequence."
    )
    stream = serializers.ChoiceField(["stdout", "stderr"], required=False)
    format = serializers.ChoiceField(["text", "json"], default="text")


class ExecutionLogs(ApiView):
    @extend_schema(
        operation_id="executions_logs",
        parameters=[LogQuery],
        responses={
            (200, "text/plain"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiResponse(
                results_of(
                    LogChunkOutput,
                    next=serializers.IntegerField(help_text="The sequence to ask `after` for what comes next."),
                )
            ),
        },
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponseBase:
        query = read_query(LogQuery, request)
        find(executions_of(user_of(request)), execution_id)
        after = int(str(query["after"]))
        attempt = int(str(query["attempt"])) if "attempt" in query else _latest_attempt(execution_id)
        chunks = (
            chunk
            for chunk in read_chunks(execution_id, attempt, after=after)
            if query.get("stream", chunk.stream) == chunk.stream
        )
        if query["format"] == "json":
            return _as_json(list(islice(chunks, MAX_CHUNKS)), after)
        return StreamingHttpResponse(
            (chunk.data for chunk in chunks),
            content_type="text/plain; charset=utf-8",
            headers={"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"},
        )


def _as_json(chunks: list[Chunk], after: int) -> Response:
    results = [
        {
            "sequence": chunk.sequence,
            "at": chunk.logged_at,
            "stream": chunk.stream,
            "text": chunk.data.decode("utf-8", "replace"),
        }
        for chunk in chunks
    ]
    following = chunks[-1].sequence if chunks else after
    return Response({"results": LogChunkOutput(results, many=True).data, "next": following})


def _latest_attempt(execution_id: UUID) -> int:
    numbers = Attempt.objects.filter(execution_id=execution_id).order_by("-number").values_list("number", flat=True)
    return numbers.first() or 0
