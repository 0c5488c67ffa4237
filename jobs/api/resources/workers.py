"""/workers: read workers; every user may."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import OneOfField
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import ApiView, get_or_404, paginate, read_query
from jobs.api.resources.representations import WorkerOutput
from jobs.models import Worker, WorkerStatus


class WorkerQuery(PageQuery):
    status = OneOfField(
        WorkerStatus.values,
        required=False,
        help_text="Filter by status. Default: all but retired workers.",
    )
    capabilities = serializers.CharField(
        required=False,
        help_text="Filter by capabilities, comma-separated, such as bash,python; a worker must have all.",
    )


class Workers(ApiView):
    @extend_schema(
        operation_id="workers_list",
        summary="List workers",
        parameters=[WorkerQuery],
        responses=build_page_serializer(WorkerOutput),
    )
    def get(self, request: Request) -> Response:
        """List all workers, their capacity and their load."""
        query = read_query(WorkerQuery, request)
        wanted = Q(status=query["status"]) if "status" in query else ~Q(status=WorkerStatus.RETIRED)
        rows = Worker.objects.filter(wanted)
        if "capabilities" in query:
            rows = rows.filter(capabilities__contains=[c.strip() for c in str(query["capabilities"]).split(",")])
        return paginate(rows, request, WorkerOutput)


class WorkerDetail(ApiView):
    @extend_schema(operation_id="workers_read", summary="Read a worker", responses=WorkerOutput)
    def get(self, request: Request, worker_id: UUID) -> Response:
        return Response(WorkerOutput(get_or_404(Worker.objects.all(), worker_id)).data)
