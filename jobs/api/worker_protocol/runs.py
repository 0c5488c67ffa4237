"""/executions/{id}/…: what workers on other machines report about a run; every write passes the attempt fence.

POST of /executions/{id}/logs and /outputs is a function here, bound by the view of that user resource.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import StrictSerializer
from jobs.api.framework.views import ApiView, read_body
from jobs.api.resources.representations import UploadOutput
from jobs.api.worker_protocol.inputs import (
    CompleteInput,
    LogInput,
    OutputInput,
    StartInput,
    build_chunks,
    build_fence,
    build_progress,
    build_report,
)
from jobs.api.worker_protocol.leases import find_own_worker
from jobs.domain.states import State
from jobs.domain.worker_protocol import AttemptFence
from jobs.execution import attempts
from jobs.fleet import remote_runs
from jobs.logs.store import append_chunks


class CompletionOutput(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    run_id = serializers.UUIDField()
    status = serializers.ChoiceField([s.value for s in State], source="state")


class ExecutionStart(ApiView):
    @extend_schema(operation_id="executions_start", summary="Start a run", request=StartInput, responses={204: None})
    def post(self, request: Request, execution_id: UUID) -> Response:
        """Report that the sandbox is up; the execution becomes `running`."""
        fence, values = _read_fenced_input(StartInput, request, execution_id)
        attempts.start_attempt(fence, values["receipt"])
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema(
    operation_id="executions_append_logs",
    summary="Append to a log",
    request=LogInput,
    responses={204: None},
    description=(
        "Append output of the program and update its progress. Idempotent: a chunk that is sent again is stored once."
        " Output beyond the log limit of an attempt is discarded, and the attempt is marked `log_truncated`."
    ),
)
def append_logs(view: ApiView, request: Request, execution_id: UUID) -> Response:
    fence, values = _read_fenced_input(LogInput, request, execution_id)
    append_chunks(fence, build_chunks(values), build_progress(values))
    return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema(
    operation_id="executions_announce_output",
    summary="Announce an output",
    request=OutputInput,
    responses={201: UploadOutput},
    description=(
        "Get the request that uploads one output file, with exactly this hash and size, to the object store. Number and"
        " total size of the files are limited per attempt."
    ),
)
def announce_output(view: ApiView, request: Request, execution_id: UUID) -> Response:
    fence, values = _read_fenced_input(OutputInput, request, execution_id)
    upload = remote_runs.announce_output(fence, sha256=values["sha256"], size=values["size"])
    return Response(UploadOutput(upload).data, status=status.HTTP_201_CREATED)


class ExecutionComplete(ApiView):
    @extend_schema(
        operation_id="executions_complete",
        summary="Complete a run",
        request=CompleteInput,
        responses=CompletionOutput,
        description="Report how the run ended. The retry policy decides the new status of the execution. Upload outputs"
        " first.",
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        fence, values = _read_fenced_input(CompleteInput, request, execution_id)
        return Response(CompletionOutput(remote_runs.complete_attempt(fence, build_report(values))).data)


def _read_fenced_input(
    serializer: type[StrictSerializer], request: Request, execution_id: UUID
) -> tuple[AttemptFence, dict[str, Any]]:
    values = dict(read_body(serializer, request))
    fence = build_fence(execution_id, values)
    find_own_worker(request, fence.worker_id)
    return fence, values
