"""/workers/…: register, renew the lease, claim work, drain and deregister, for workers on other machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access.rate_limit import count_registration
from jobs.api.framework.fields import StrictIntegerField, StrictSerializer
from jobs.api.framework.permissions import is_worker_token
from jobs.api.framework.views import ApiView, get_or_404, read_body
from jobs.api.resources.representations import WorkerOutput
from jobs.api.worker_protocol.idle_workers import IdleWorkerAuthentication, read_token_digest
from jobs.api.worker_protocol.inputs import (
    MAX_INT64,
    ClaimInput,
    HeartbeatInput,
    IncarnationInput,
    RegistrationInput,
    build_offer,
    build_usage,
    parse_held,
)
from jobs.db.waiting import Steps
from jobs.db.wakeups import wake_worker
from jobs.domain import limits
from jobs.domain.errors import StaffOnly, TooManyRegistrations
from jobs.domain.worker_protocol import PROTOCOL_VERSION, ClaimedRun, Registration
from jobs.fleet import leases
from jobs.fleet.remote_claims import await_work, find_idle_claim
from jobs.models import ApiToken, Worker
from jobs.models.visibility import is_operator
from jobs.storage import s3


class TermsOutput(serializers.Serializer[Any]):
    protocol = serializers.IntegerField(help_text="Protocol version. A worker with another version must be upgraded.")
    lease_seconds = serializers.FloatField()
    renew_seconds = serializers.FloatField()
    claim_wait_seconds = serializers.FloatField()
    token_expires_at = serializers.DateTimeField(allow_null=True, help_text="Null if the token does not expire.")


class RegistrationOutput(serializers.Serializer[Any]):
    worker_id = serializers.UUIDField()
    incarnation = serializers.IntegerField()
    lease_seconds = serializers.FloatField(help_text="Lease length from now on; overrides the terms.")


class OrderOutput(serializers.Serializer[Any]):
    """Order to stop an attempt."""

    execution_id = serializers.UUIDField()
    attempt = serializers.IntegerField()
    cancelled = serializers.BooleanField(
        help_text="True: cancelled by a user. False: no longer assigned to this worker."
    )


class OrdersOutput(serializers.Serializer[Any]):
    orders = OrderOutput(many=True)
    lease_seconds = serializers.FloatField(help_text="Lease length from now on.")


class ProgramOutput(serializers.Serializer[Any]):
    sha256 = serializers.CharField()
    size = serializers.IntegerField()
    url = serializers.CharField(help_text="Presigned URL, valid for a few minutes, longer for large downloads.")


class ClaimedFileOutput(ProgramOutput):
    path = serializers.CharField(
        allow_null=True, help_text="Path below the program's directory; null for standard input."
    )


class ClaimedSecretOutput(serializers.Serializer[Any]):
    """A secret for one run. If one has a `problem`, do not start the run: complete it with `secret_unavailable`."""

    name = serializers.CharField()
    value = serializers.CharField(help_text="Plaintext value; empty if there is a problem.")
    env = serializers.CharField(allow_null=True, help_text="Environment variable for the value.")
    path = serializers.CharField(
        allow_null=True, help_text="File for the value, below the program's directory; instead of `env`."
    )
    problem = serializers.CharField()


class ClaimedOutput(serializers.Serializer[Any]):
    """Everything a worker needs to run one attempt."""

    execution_id = serializers.UUIDField()
    attempt = serializers.IntegerField()
    job_id = serializers.UUIDField()
    job_name = serializers.CharField()
    run_id = serializers.UUIDField()
    scheduled_for = serializers.DateTimeField()
    claimed_at = serializers.DateTimeField()
    runtime = serializers.CharField()
    args = serializers.ListField(child=serializers.CharField())
    env = serializers.DictField(child=serializers.CharField())
    cpu = serializers.FloatField()
    memory_mb = serializers.IntegerField()
    disk_mb = serializers.IntegerField()
    timeout_seconds = serializers.FloatField()
    seconds_left = serializers.FloatField(
        allow_null=True, help_text="Seconds until the deadline, which also ends the run."
    )
    network = serializers.BooleanField(help_text="Whether the run has network access.")
    program = ProgramOutput()
    inputs = ClaimedFileOutput(many=True)
    secrets = ClaimedSecretOutput(many=True)


class WorkOutput(serializers.Serializer[Any]):
    executions = ClaimedOutput(many=True)
    orders = OrderOutput(many=True)


class DrainInput(StrictSerializer):
    incarnation = StrictIntegerField(
        required=False, min_value=1, max_value=MAX_INT64, help_text="Required from a worker that drains itself."
    )


def require_token(request: Request) -> ApiToken:
    if not isinstance(request.auth, ApiToken):
        raise exceptions.NotAuthenticated
    return request.auth


def find_own_worker(request: Request, worker_id: UUID) -> Worker:
    """Return the worker if this request's token registered it; else 404."""
    return get_or_404(Worker.objects.filter(token=require_token(request)), worker_id)


class WorkerTerms(ApiView):
    @extend_schema(
        operation_id="workers_terms",
        summary="Read the terms for workers",
        responses=TermsOutput,
        description="Protocol version and timings that a worker must keep to.",
    )
    def get(self, request: Request) -> Response:
        terms = {
            "protocol": PROTOCOL_VERSION,
            "lease_seconds": settings.PUNCTUAL_LEASE_SECONDS,
            "renew_seconds": settings.PUNCTUAL_RENEW_SECONDS,
            "claim_wait_seconds": limits.CLAIM_WAIT_SECONDS,
            "token_expires_at": require_token(request).expires_at,
        }
        return Response(TermsOutput(terms).data)


class WorkerRegister(ApiView):
    @extend_schema(
        operation_id="workers_register",
        summary="Register a worker",
        request=RegistrationInput,
        responses={201: RegistrationOutput},
    )
    def post(self, request: Request) -> Response:
        """Start a new incarnation of the worker. Attempts of its earlier incarnations are lost."""
        offer, token = build_offer(read_body(RegistrationInput, request)), require_token(request)
        if token.pool and offer.pool != token.pool:
            raise exceptions.PermissionDenied(f"This token is valid for workers of the pool {token.pool} only.")
        rate = count_registration(token)
        if rate is not None and not rate.admitted:
            raise TooManyRegistrations(rate.limit, rate.retry_seconds)
        registration = leases.register_worker(offer, token_id=token.id)
        values = asdict(registration) | {"lease_seconds": settings.PUNCTUAL_LEASE_SECONDS}
        return Response(RegistrationOutput(values).data, status=status.HTTP_201_CREATED)


class WorkerHeartbeat(ApiView):
    @extend_schema(
        operation_id="workers_heartbeat",
        summary="Renew the lease of a worker",
        request=HeartbeatInput,
        responses=OrdersOutput,
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        """Renew the lease and report the attempts held; the response orders which of them to stop.

        An attempt missing in `held` counts as lost.
        """
        values = read_body(HeartbeatInput, request)
        registration = _build_registration(request, worker_id, values["incarnation"])
        orders = leases.renew_lease(
            registration, parse_held(values), build_usage(values), lease_seconds=float(str(values["lease_seconds"]))
        )
        return Response(OrdersOutput({"orders": orders, "lease_seconds": settings.PUNCTUAL_LEASE_SECONDS}).data)


class WorkerClaim(ApiView):
    authentication_classes = [IdleWorkerAuthentication]

    @extend_schema(
        operation_id="workers_claim",
        summary="Claim work",
        request=ClaimInput,
        responses=WorkOutput,
        auth=[{"bearerToken": []}],  # type: ignore[list-item]  # a scheme with its scopes, as the base method returns
        description="Claim the attempts placed on the worker, waiting up to `wait_seconds` for some. An empty response"
        " may come early if too many workers wait; ask again after a moment.",
    )
    def post(self, request: Request, worker_id: UUID) -> HttpResponseBase:
        values = read_body(ClaimInput, request)
        token, digest = require_token(request), read_token_digest(request)
        registration = _build_own_registration(request, worker_id, values["incarnation"])
        seconds = float(str(values["wait_seconds"]))

        def claim() -> Steps[HttpResponse]:
            work = yield from await_work(registration, parse_held(values), seconds=seconds, token=token, digest=digest)
            url_seconds = _compute_url_seconds(work.claimed)
            executions = [_represent_claim(claimed, url_seconds) for claimed in work.claimed]
            # The response contains secrets.
            headers = {"Cache-Control": "no-store"}
            return Response(WorkOutput({"executions": executions, "orders": work.orders}).data, headers=headers)

        return self.respond_later(request, claim())


class WorkerDrain(ApiView):
    @extend_schema(
        operation_id="workers_drain",
        summary="Drain a worker",
        request=DrainInput,
        responses=WorkerOutput,
        description="Give the worker no new work until it registers again; running attempts finish. For staff, and for"
        " the worker, which must send its incarnation.",
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        values = read_body(DrainInput, request)
        if is_worker_token(request):
            worker = find_own_worker(request, worker_id)
            if "incarnation" not in values:
                raise serializers.ValidationError({"incarnation": ["This field is required."]})
        elif is_operator(request.user):
            worker = get_or_404(Worker.objects.all(), worker_id)
        else:
            raise StaffOnly("Only staff may drain a worker.")
        registration = Registration(worker.id, int(str(values.get("incarnation", worker.incarnation))))
        if is_worker_token(request):
            leases.drain_worker(registration)
        else:
            leases.request_drain(registration)
        wake_worker(worker.id)
        worker.refresh_from_db()
        return Response(WorkerOutput(worker).data)


class WorkerLeave(ApiView):
    @extend_schema(
        operation_id="workers_leave",
        summary="Deregister a worker",
        request=IncarnationInput,
        responses={204: None},
        description="End the worker's lease. Attempts it still holds are lost.",
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        values = read_body(IncarnationInput, request)
        leases.deregister_worker(_build_registration(request, worker_id, values["incarnation"]))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _build_registration(request: Request, worker_id: UUID, incarnation: object) -> Registration:
    return Registration(find_own_worker(request, worker_id).id, int(str(incarnation)))


def _build_own_registration(request: Request, worker_id: UUID, incarnation: object) -> Registration:
    """Like `_build_registration`, without a read for a worker that waited idle with this token a moment ago.

    Only for the incarnation that waited: a later one may have registered with another token.
    """
    registration = Registration(worker_id, int(str(incarnation)))
    idle = find_idle_claim(worker_id, read_token_digest(request))
    if idle is not None and idle.registration == registration:
        return registration
    return _build_registration(request, worker_id, incarnation)


def _compute_url_seconds(claims: Sequence[ClaimedRun]) -> int:
    """Return the validity of the URLs of one response: long enough to download all files over one slow link."""
    size = sum(claimed.size + sum(file.size for file in claimed.input_files()) for claimed in claims)
    return min(limits.DOWNLOAD_URL_SECONDS + size // limits.MIN_FETCH_BYTES_PER_SECOND, limits.MAX_DOWNLOAD_URL_SECONDS)


def _represent_claim(claimed: ClaimedRun, seconds: int) -> dict[str, object]:
    return {
        **asdict(claimed),
        "args": json.loads(claimed.args),
        "env": json.loads(claimed.env),
        "program": {"sha256": claimed.sha256, "size": claimed.size, "url": _presign_artifact(claimed.sha256, seconds)},
        "inputs": [{**asdict(file), "url": _presign_artifact(file.sha256, seconds)} for file in claimed.input_files()],
        "secrets": claimed.opened_secrets(),
    }


def _presign_artifact(sha256: str, seconds: int) -> str:
    """Presign the URL of a file of the run; anyone who has the URL can read the file."""
    return s3.presign_download(s3.artifact_key(sha256), "artifact", seconds=seconds)
