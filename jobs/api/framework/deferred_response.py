"""Responses that wait or stream in steps, which hold no thread and no connection between them.

The web server's event loop runs the steps (`scheduler_project/web`). For every other caller of Django, such as the
test client, `BlockingMiddleware` waits on the caller's thread and returns the finished response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from jobs.db.waiting import Steps, StreamedSteps, run_blocking, wait_blocking

FinishResponse = Callable[[HttpResponse], HttpResponse]
HandleError = Callable[[Exception], HttpResponse]


class EventLoopRequest:
    """Marker of a request whose server runs the response's steps."""


class DeferredResponse(HttpResponseBase):
    """Placeholder of a response to come; headers and cookies that middleware sets carry over to it."""

    streaming = True

    def __init__(self, steps: Steps[HttpResponse], abandon: Callable[[], None]) -> None:
        super().__init__()
        del self["Content-Type"]
        self.steps = steps
        # The context holds the acting user.
        self.context = copy_context()
        self._resource_closers.append(abandon)  # type: ignore[attr-defined]

    def finish(self, response: HttpResponse) -> HttpResponse:
        for name, value in self.items():
            response.headers.setdefault(name, value)
        response.cookies.update(self.cookies)
        response.headers.setdefault("Content-Length", str(len(response.content)))
        return response


class SteppedResponse(StreamingHttpResponse):
    """A stream whose steps yield bytes or pauses."""

    def __init__(
        self, steps: StreamedSteps, *, abandon: Callable[[], None], content_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(run_blocking(steps), content_type=content_type, headers=dict(headers))
        self.steps = steps
        self.context = copy_context()
        # Called even if nothing was read: closing a generator that never began runs none of its code.
        self._resource_closers.append(abandon)  # type: ignore[attr-defined]


def defer_response(steps: Steps[HttpResponse], *, finish: FinishResponse, fail: HandleError) -> HttpResponseBase:
    """Run the steps up to the first pause; return a plain response if there is none.

    An error before the first pause propagates to the caller; `fail` handles later ones.
    """
    try:
        pause = next(steps)
    except StopIteration as end:
        response: HttpResponse = end.value
        return response

    def remaining_steps() -> Steps[HttpResponse]:
        try:
            yield pause
            response = yield from steps
        except Exception as error:  # noqa: BLE001 - any error of a view
            response = fail(error)
        return finish(response)

    return DeferredResponse(remaining_steps(), steps.close)


class BlockingMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if not isinstance(response, DeferredResponse) or isinstance(request, EventLoopRequest):
            return response
        return response.finish(response.context.run(wait_blocking, response.steps))
