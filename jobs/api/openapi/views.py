"""/schema and /docs: the OpenAPI schema and its documentation page, public.

The page loads nothing from other hosts, enforced by its content security policy: it works offline and leaks no visits.
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

from jobs.api.framework.throttling import RateLimitedMixin

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Schema(RateLimitedMixin, SpectacularAPIView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        renderer: BaseRenderer = request.accepted_renderer
        charset = f"; charset={renderer.charset}" if renderer.charset else ""
        return HttpResponse(
            _render_schema(type(renderer)),  # type: ignore[arg-type]  # a class is hashable even if its instances are not
            content_type=f"{renderer.media_type}{charset}",
            headers={"Content-Disposition": f'inline; filename="punctual.{renderer.format}"'},
        )


class Docs(RateLimitedMixin, SpectacularSwaggerSplitView):
    template_name = "jobs/docs.html"

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
        # The page's start script contains a CSRF token.
        response["Cross-Origin-Resource-Policy"] = "same-origin"
        return super().finalize_response(request, response, *args, **kwargs)


@cache
def _render_schema(renderer: type[BaseRenderer]) -> bytes | str:
    """Render the schema once per process: it takes most of a second, and the route is public."""
    schema = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return renderer().render(schema)
