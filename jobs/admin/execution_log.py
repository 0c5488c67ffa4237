"""An execution's log as a page, and what follows of it for the page's own script.

Nothing of a log is markup or a control character once it leaves here; the script only appends text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from django import forms
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, JsonResponse
from django.utils.http import urlencode

from jobs import conf
from jobs.display import show_log
from jobs.models import Attempt, Execution
from jobs.protocol import Chunk
from jobs.services.log_following import await_page
from jobs.services.logs import LAST, read_tail

PAGE_BYTES = 256 * 1024
STREAMS = [("", "both streams"), ("stdout", "stdout"), ("stderr", "stderr")]


@dataclass(frozen=True, slots=True)
class Wanted:
    attempt: int | None
    stream: str | None
    before: int | None
    after: int | None


class WantedForm(forms.Form):
    """What the page's address asks for."""

    attempt = forms.IntegerField(required=False, min_value=1, max_value=LAST - 1)
    stream = forms.ChoiceField(required=False, choices=STREAMS)
    before = forms.IntegerField(required=False, min_value=0, max_value=LAST - 1)
    after = forms.IntegerField(required=False, min_value=-1, max_value=LAST - 1)


@dataclass(frozen=True, slots=True)
class Row:
    at: str
    stream: str
    text: str
    open: bool  # its last line goes on in another row


def page_of_log(request: HttpRequest, execution: Execution) -> dict[str, object]:
    """What the template shows: the end of the log, or what is before a sequence."""
    wanted = _read(request, execution)
    stream, before = wanted.stream, wanted.before
    page = read_tail(
        execution.id, wanted.attempt, before=LAST if before is None else before, stream=stream, max_bytes=PAGE_BYTES
    )
    shown = page.standing.attempt
    numbers = Attempt.objects.filter(execution_id=execution.id).order_by("number").values_list("number", flat=True)
    here: dict[str, str | int] = {"attempt": shown} if shown else {}
    if stream:
        here["stream"] = stream
    first = page.chunks[0].sequence if page.chunks else 0
    return {
        "attempt": shown,
        "attempts": list(numbers),
        "stream": stream or "",
        "streams": STREAMS,
        "rows": _rows(page.chunks),
        "is_end": before is None,
        "ended": page.standing.ended,
        "truncated": page.standing.truncated,
        "earlier": urlencode({**here, "before": first}) if first > 0 else "",
        "query": urlencode(here),
        "after": page.chunks[-1].sequence if page.chunks else -1,
    }


def next_of_log(request: HttpRequest, execution: Execution) -> JsonResponse:
    """For the script, which waits with us for something to come."""
    wanted = _read(request, execution)
    after = -1 if wanted.after is None else wanted.after
    seconds = conf.FOLLOW_WAIT_SECONDS
    page = await_page(execution.id, wanted.attempt, after=after, stream=wanted.stream, seconds=seconds)
    return JsonResponse(
        {
            "rows": [asdict(row) for row in _rows(page.chunks)],
            "next": page.chunks[-1].sequence if page.chunks else after,
            "ended": page.standing.ended,
            "truncated": page.standing.truncated,
        }
    )


def _read(request: HttpRequest, execution: Execution) -> Wanted:
    form = WantedForm(request.GET)
    if not form.is_valid():
        raise BadRequest("The address asks for something that there is not.")
    wanted = Wanted(**form.cleaned_data | {"stream": form.cleaned_data["stream"] or None})
    if wanted.attempt is not None and wanted.attempt > execution.attempt:
        raise Http404
    return wanted


def _rows(chunks: Sequence[Chunk]) -> list[Row]:
    return [_row(chunk) for chunk in chunks]


def _row(chunk: Chunk) -> Row:
    text = show_log(chunk.data)
    at = f"{chunk.logged_at:%Y-%m-%d %H:%M:%S}.{chunk.logged_at.microsecond // 1000:03d}"
    return Row(at, chunk.stream, text.removesuffix("\n"), open=not text.endswith("\n"))
