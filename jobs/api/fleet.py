"""/workers and /queues: where work runs; everybody who is logged in may look."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.conditional import IF_NONE_MATCH, NOT_MODIFIED, show
from jobs.api.queries import PageQuery, page_of
from jobs.api.representations import QueueOutput, WorkerOutput
from jobs.api.views import ApiView, find, page, read_query
from jobs.models import Queue, Worker, WorkerStatus


class WorkerQuery(PageQuery):
    status = serializers.ChoiceField(WorkerStatus.values, required=False)
    capabilities = serializers.CharField(required=False, help_text="Able to do all of these, such as bash,python.")


class Workers(ApiView):
    @extend_schema(operation_id="workers_list", parameters=[WorkerQuery], responses=page_of(WorkerOutput))
    def get(self, request: Request) -> Response:
        query = read_query(WorkerQuery, request)
        rows = Worker.objects.all()
        if "status" in query:
            rows = rows.filter(status=query["status"])
        if "capabilities" in query:
            rows = rows.filter(capabilities__contains=[c.strip() for c in str(query["capabilities"]).split(",")])
        return page(rows, request, WorkerOutput)


class WorkerDetail(ApiView):
    @extend_schema(operation_id="workers_read", responses=WorkerOutput)
    def get(self, request: Request, worker_id: UUID) -> Response:
        return Response(WorkerOutput(find(Worker.objects.all(), worker_id)).data)


class Queues(ApiView):
    @extend_schema(operation_id="queues_list", parameters=[PageQuery], responses=page_of(QueueOutput))
    def get(self, request: Request) -> Response:
        read_query(PageQuery, request)
        return page(Queue.objects.all(), request, QueueOutput)


class QueueDetail(ApiView):
    @extend_schema(
        operation_id="queues_read", parameters=[IF_NONE_MATCH], responses={200: QueueOutput, 304: NOT_MODIFIED}
    )
    def get(self, request: Request, queue_id: UUID) -> HttpResponse:
        return show(request, QueueOutput(find(Queue.objects.all(), queue_id)).data)
