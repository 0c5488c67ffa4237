"""Log page of an execution, and the long poll of its script.

Invariant: log text leaves here without control characters, and the script inserts it as text, never as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from django import forms
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.http import urlencode

from jobs.db.waiting import Steps
from jobs.domain import limits
from jobs.domain.text_escaping import decode_log
from jobs.domain.worker_protocol import Chunk
from jobs.logs.store import BEYOND_LAST_SEQUENCE, await_page, read_tail
from jobs.models import Attempt, Execution

PAGE_BYTES = 256 * 1024
STREAMS = [("", "both streams"), ("stdout", "stdout"), ("stderr", "stderr")]


@dataclass(frozen=True, slots=True)
class LogQuery:
    attempt: int | None
    stream: str | None
    before: int | None
    after: int | None


class LogQueryForm(forms.Form):
    """Query parameters of the page."""

    attempt = forms.IntegerField(required=False, min_value=1, max_value=BEYOND_LAST_SEQUENCE - 1)
    stream = forms.ChoiceField(required=False, choices=STREAMS)
    before = forms.IntegerField(required=False, min_value=0, max_value=BEYOND_LAST_SEQUENCE - 1)
    after = forms.IntegerField(required=False, min_value=-1, max_value=BEYOND_LAST_SEQUENCE - 1)


@dataclass(frozen=True, slots=True)
class LogRow:
    at: str
    stream: str
    text: str
    open: bool  # its last line continues in another row


def build_log_page(request: HttpRequest, execution: Execution) -> dict[str, object]:
    """Build the template's context: the end of the log, or the part before a sequence."""
    query = _parse_query(request, execution)
    stream, before = query.stream, query.before
    page = read_tail(
        execution.id,
        query.attempt,
        before=BEYOND_LAST_SEQUENCE if before is None else before,
        stream=stream,
        max_bytes=PAGE_BYTES,
    )
    attempt = page.status.attempt
    numbers = Attempt.objects.filter(execution_id=execution.id).order_by("number").values_list("number", flat=True)
    selection: dict[str, str | int] = {"attempt": attempt} if attempt else {}
    if stream:
        selection["stream"] = stream
    first = page.chunks[0].sequence if page.chunks else 0
    return {
        "attempt": attempt,
        "attempts": list(numbers),
        "stream": stream or "",
        "streams": STREAMS,
        "rows": _build_rows(page.chunks),
        "is_end": before is None,
        "ended": page.status.ended,
        "truncated": page.status.truncated,
        "earlier": urlencode({**selection, "before": first}) if first > 0 else "",
        "query": urlencode(selection),
        "after": page.chunks[-1].sequence if page.chunks else -1,
    }


def await_log_rows(request: HttpRequest, execution: Execution) -> Steps[HttpResponse]:
    """Return new rows for the page's script, waiting until the log grows."""
    query = _parse_query(request, execution)
    after = -1 if query.after is None else query.after
    seconds = limits.FOLLOW_WAIT_SECONDS
    page = yield from await_page(execution.id, query.attempt, after=after, stream=query.stream, seconds=seconds)
    return JsonResponse(
        {
            "rows": [asdict(row) for row in _build_rows(page.chunks)],
            "next": page.chunks[-1].sequence if page.chunks else after,
            "ended": page.status.ended,
            "truncated": page.status.truncated,
        }
    )


def _parse_query(request: HttpRequest, execution: Execution) -> LogQuery:
    form = LogQueryForm(request.GET)
    if not form.is_valid():
        raise BadRequest("Invalid attempt, stream or position in the URL.")
    query = LogQuery(**form.cleaned_data | {"stream": form.cleaned_data["stream"] or None})
    if query.attempt is not None and query.attempt > execution.attempt:
        raise Http404
    return query


def _build_rows(chunks: Sequence[Chunk]) -> list[LogRow]:
    return [_build_row(chunk) for chunk in chunks]


def _build_row(chunk: Chunk) -> LogRow:
    text = decode_log(chunk.data)
    at = f"{chunk.logged_at:%Y-%m-%d %H:%M:%S}.{chunk.logged_at.microsecond // 1000:03d}"
    return LogRow(at, chunk.stream, text.removesuffix("\n"), open=not text.endswith("\n"))
