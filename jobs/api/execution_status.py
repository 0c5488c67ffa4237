"""/executions/{id}: how an execution stands, for however many ask."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from jobs.api.conditional import IF_NONE_MATCH, NOT_MODIFIED, show_rendered
from jobs.api.executions import executions_of
from jobs.api.representations import ExecutionOutput
from jobs.api.views import ApiView, find, user_of
from jobs.querysets.visibility import viewpoint
from jobs.services.status_cache import Place, read_through


def read_status(user: User, execution_id: UUID) -> bytes:
    """As JSON, at most a second old; 404 if it is not the user's to see."""

    def read() -> bytes:
        rendered: bytes = JSONRenderer().render(ExecutionOutput(find(executions_of(user), execution_id)).data)
        return rendered

    return read_through(Place(execution_id, viewpoint(user)), read)


class ExecutionDetail(ApiView):
    @extend_schema(
        operation_id="executions_read",
        parameters=[IF_NONE_MATCH],
        responses={200: ExecutionOutput, 304: NOT_MODIFIED},
    )
    def get(self, request: Request, execution_id: UUID) -> HttpResponse:
        return show_rendered(request, read_status(user_of(request), execution_id))
