"""/schema and /docs: what the API is, for programs and for people, open to everybody.

The page loads nothing from anywhere else, and could not: it works without a network, and nobody learns who reads it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.limiting import Limited

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Schema(Limited, SpectacularAPIView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        renderer: BaseRenderer = request.accepted_renderer
        charset = f"; charset={renderer.charset}" if renderer.charset else ""
        return HttpResponse(
            _rendered(type(renderer)),  # type: ignore[arg-type]  # a class is hashable, whatever its instances are
            content_type=f"{renderer.media_type}{charset}",
            headers={"Content-Disposition": f'inline; filename="punctual.{renderer.format}"'},
        )


class Docs(Limited, SpectacularSwaggerSplitView):
    template_name = "jobs/docs.html"

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response["Content-Security-Policy"] = POLICY
        # A CSRF token is in the script that starts the page.
        response["Cross-Origin-Resource-Policy"] = "same-origin"
        return super().finalize_response(request, response, *args, **kwargs)


@cache
def _rendered(renderer: type[BaseRenderer]) -> bytes | str:
    """Once in the life of a process: it takes the better part of a second, and anybody may ask."""
    schema = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return renderer().render(schema)
