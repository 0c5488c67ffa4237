"""/executions/{id}/…: what a worker on another machine says of a run. Each passes the fence or changes nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import executions, logs
from jobs.api.fields import StrictSerializer
from jobs.api.representations import UploadOutput
from jobs.api.views import ApiView, read_body
from jobs.api.worker_input import (
    CompleteInput,
    LogInput,
    OutputInput,
    StartInput,
    chunks_of,
    hold_of,
    progress_of,
    report_of,
)
from jobs.api.worker_standing import own_worker
from jobs.protocol import Hold
from jobs.services import attempts, worker_runs
from jobs.services.logs import append_chunks
from jobs.states import State


class MovedOutput(serializers.Serializer[Any]):
    execution_id = serializers.UUIDField()
    job_id = serializers.UUIDField()
    run_id = serializers.UUIDField()
    status = serializers.ChoiceField([s.value for s in State], source="state")


class ExecutionStart(ApiView):
    @extend_schema(
        operation_id="executions_start", summary="Say that a run has begun", request=StartInput, responses={204: None}
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        """The sandbox is up: the execution is `running` from now on."""
        hold, values = _read(StartInput, request, execution_id)
        attempts.start_attempt(hold, values["receipt"])
        return Response(status=status.HTTP_204_NO_CONTENT)


class ExecutionLogs(logs.ExecutionLogs):
    @extend_schema(
        operation_id="executions_append_logs",
        summary="Append to a log",
        request=LogInput,
        responses={204: None},
        description=(
            "What the program wrote, and how far it says it is; a chunk that is sent twice is stored once. What is more"
            " than an attempt may write is left out, and the attempt is marked `log_truncated`."
        ),
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        hold, values = _read(LogInput, request, execution_id)
        append_chunks(hold, chunks_of(values), progress_of(values), capped=False)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ExecutionOutputs(executions.ExecutionOutputs):
    @extend_schema(
        operation_id="executions_announce_output",
        summary="Announce an output",
        request=OutputInput,
        responses={201: UploadOutput},
        description=(
            "The one request that stores a file that the run left: exactly these bytes, straight to the store."
            " How many and how large they may be in all is limited for each attempt."
        ),
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        hold, values = _read(OutputInput, request, execution_id)
        upload = worker_runs.announce_output(hold, sha256=values["sha256"], size=values["size"])
        return Response(UploadOutput(upload).data, status=status.HTTP_201_CREATED)


class ExecutionComplete(ApiView):
    @extend_schema(
        operation_id="executions_complete",
        summary="Say how a run ended",
        request=CompleteInput,
        responses=MovedOutput,
        description="Ends the attempt: what its execution becomes, the retry policy says. Its outputs come first.",
    )
    def post(self, request: Request, execution_id: UUID) -> Response:
        hold, values = _read(CompleteInput, request, execution_id)
        return Response(MovedOutput(worker_runs.complete_attempt(hold, report_of(values))).data)


def _read(serializer: type[StrictSerializer], request: Request, execution_id: UUID) -> tuple[Hold, dict[str, Any]]:
    values = dict(read_body(serializer, request))
    hold = hold_of(execution_id, values)
    own_worker(request, hold.worker_id)
    return hold, values
