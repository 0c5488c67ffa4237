"""/workers: where work runs; everybody who is logged in may look."""

from __future__ import annotations

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.fields import OneOfField
from jobs.api.queries import PageQuery, page_of
from jobs.api.representations import WorkerOutput
from jobs.api.views import ApiView, find, page, read_query
from jobs.models import Worker, WorkerStatus


class WorkerQuery(PageQuery):
    status = OneOfField(WorkerStatus.values, required=False, help_text="Those that stand so.")
    capabilities = serializers.CharField(required=False, help_text="Able to do all of these, such as bash,python.")


class Workers(ApiView):
    @extend_schema(
        operation_id="workers_list", summary="List workers", parameters=[WorkerQuery], responses=page_of(WorkerOutput)
    )
    def get(self, request: Request) -> Response:
        """Everybody who is logged in may look."""
        query = read_query(WorkerQuery, request)
        rows = Worker.objects.all()
        if "status" in query:
            rows = rows.filter(status=query["status"])
        if "capabilities" in query:
            rows = rows.filter(capabilities__contains=[c.strip() for c in str(query["capabilities"]).split(",")])
        return page(rows, request, WorkerOutput)


class WorkerDetail(ApiView):
    @extend_schema(operation_id="workers_read", summary="Read a worker", responses=WorkerOutput)
    def get(self, request: Request, worker_id: UUID) -> Response:
        return Response(WorkerOutput(find(Worker.objects.all(), worker_id)).data)
