"""/workers/…: what a worker on another machine says of itself: it is here, lives, asks for work, drains, leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf, storage
from jobs.api.fields import StrictSerializer, WholeNumberField
from jobs.api.permissions import is_worker_token
from jobs.api.representations import WorkerOutput
from jobs.api.views import ApiView, find, read_body
from jobs.api.worker_input import (
    LARGEST_BIG_INTEGER,
    ClaimInput,
    HeartbeatInput,
    OfferInput,
    StandingInput,
    held_of,
    offer_of,
    usage_of,
)
from jobs.errors import StaffOnly
from jobs.models import ApiToken, Worker
from jobs.protocol import PROTOCOL_VERSION, Claimed, Registration
from jobs.services import leases
from jobs.services.claiming import await_work
from jobs.wakeups import wake_worker


class TermsOutput(serializers.Serializer[Any]):
    protocol = serializers.IntegerField(help_text="A worker that speaks another one must be brought up to date.")
    lease_seconds = serializers.FloatField()
    renew_seconds = serializers.FloatField()
    claim_wait_seconds = serializers.FloatField()


class RegistrationOutput(serializers.Serializer[Any]):
    worker_id = serializers.UUIDField()
    incarnation = serializers.IntegerField()


class OrderOutput(serializers.Serializer[Any]):
    """An attempt that the worker must stop."""

    execution_id = serializers.UUIDField()
    attempt = serializers.IntegerField()
    cancelled = serializers.BooleanField(help_text="Somebody cancelled it; else it is no longer this worker's.")


class OrdersOutput(serializers.Serializer[Any]):
    orders = OrderOutput(many=True)


class ProgramOutput(serializers.Serializer[Any]):
    sha256 = serializers.CharField()
    size = serializers.IntegerField()
    url = serializers.CharField(help_text="Good for a few minutes, and for longer if there is much to fetch.")


class GivenFileOutput(ProgramOutput):
    path = serializers.CharField(allow_null=True, help_text="Below the program's directory. Null: standard input.")


class ClaimedSecretOutput(serializers.Serializer[Any]):
    """A run that is given one with a problem does not begin; it ends with the reason secret_unavailable."""

    name = serializers.CharField()
    value = serializers.CharField(help_text="Only here, for the program. Empty if there is a problem.")
    env = serializers.CharField(allow_null=True, help_text="The variable that is to hold it.")
    path = serializers.CharField(allow_null=True, help_text="Instead: the file, below the program's directory.")
    problem = serializers.CharField()


class ClaimedOutput(serializers.Serializer[Any]):
    """All that a run needs, and no more."""

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
    seconds_left = serializers.FloatField(allow_null=True, help_text="Until its deadline; a run ends then, too.")
    network = serializers.BooleanField(help_text="Whether the run is given one.")
    program = ProgramOutput()
    inputs = GivenFileOutput(many=True)
    secrets = ClaimedSecretOutput(many=True)


class WorkOutput(serializers.Serializer[Any]):
    executions = ClaimedOutput(many=True)
    orders = OrderOutput(many=True)


class DrainInput(StrictSerializer):
    incarnation = WholeNumberField(
        required=False, min_value=1, max_value=LARGEST_BIG_INTEGER, help_text="Of a worker that drains itself."
    )


def token_of(request: Request) -> ApiToken:
    if not isinstance(request.auth, ApiToken):
        raise exceptions.NotAuthenticated
    return request.auth


def own_worker(request: Request, worker_id: UUID) -> Worker:
    """What another token registered does not exist for this one."""
    return find(Worker.objects.filter(token=token_of(request)), worker_id)


class WorkerTerms(ApiView):
    @extend_schema(
        operation_id="workers_terms",
        summary="Read the terms for workers",
        responses=TermsOutput,
        description="What a worker must keep to.",
    )
    def get(self, request: Request) -> Response:
        terms = {
            "protocol": PROTOCOL_VERSION,
            "lease_seconds": settings.PUNCTUAL_LEASE_SECONDS,
            "renew_seconds": settings.PUNCTUAL_RENEW_SECONDS,
            "claim_wait_seconds": conf.CLAIM_WAIT_SECONDS,
        }
        return Response(TermsOutput(terms).data)


class WorkerRegister(ApiView):
    @extend_schema(
        operation_id="workers_register",
        summary="Register a worker",
        request=OfferInput,
        responses={201: RegistrationOutput},
    )
    def post(self, request: Request) -> Response:
        """A new incarnation, which takes away what earlier ones of this worker held."""
        offer, token = offer_of(read_body(OfferInput, request)), token_of(request)
        if token.pool and offer.pool != token.pool:
            raise exceptions.PermissionDenied(f"This token is good for workers of the pool {token.pool} only.")
        registration = leases.register_worker(offer, token_id=token.id)
        return Response(RegistrationOutput(registration).data, status=status.HTTP_201_CREATED)


class WorkerHeartbeat(ApiView):
    @extend_schema(
        operation_id="workers_heartbeat",
        summary="Renew the lease of a worker",
        request=HeartbeatInput,
        responses=OrdersOutput,
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        """Renews its lease and says what it holds; the answer says what to stop. What it leaves out is lost."""
        values = read_body(HeartbeatInput, request)
        registration = _registration(request, worker_id, values["incarnation"])
        orders = leases.renew_lease(registration, held_of(values), usage_of(values))
        return Response(OrdersOutput({"orders": orders}).data)


class WorkerClaim(ApiView):
    @extend_schema(
        operation_id="workers_claim",
        summary="Claim work",
        request=ClaimInput,
        responses=WorkOutput,
        description="Takes what is placed on the worker, and waits for it if there is nothing. An empty answer may come"
        " early when too many wait: ask again after a moment.",
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        values = read_body(ClaimInput, request)
        registration = _registration(request, worker_id, values["incarnation"])
        work = await_work(registration, held_of(values), seconds=float(str(values["wait_seconds"])))
        seconds = _fetch_seconds(work.claimed)
        executions = [_shown(claimed, seconds) for claimed in work.claimed]
        # Secrets are in it.
        headers = {"Cache-Control": "no-store"}
        return Response(WorkOutput({"executions": executions, "orders": work.orders}).data, headers=headers)


class WorkerDrain(ApiView):
    @extend_schema(
        operation_id="workers_drain",
        summary="Drain a worker",
        request=DrainInput,
        responses=WorkerOutput,
        description="It finishes what it holds and gets nothing new, until it registers again. For staff, and for the"
        " worker itself, which says its incarnation.",
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        values = read_body(DrainInput, request)
        if is_worker_token(request):
            worker = own_worker(request, worker_id)
            if "incarnation" not in values:
                raise serializers.ValidationError({"incarnation": ["This field is required."]})
        elif isinstance(request.user, User) and request.user.is_staff:
            worker = find(Worker.objects.all(), worker_id)
        else:
            raise StaffOnly("Only staff may drain a worker.")
        standing = Registration(worker.id, int(str(values.get("incarnation", worker.incarnation))))
        if is_worker_token(request):
            leases.drain_worker(standing)
        else:
            leases.order_drain(standing)
        wake_worker(worker.id)
        worker.refresh_from_db()
        return Response(WorkerOutput(worker).data)


class WorkerLeave(ApiView):
    @extend_schema(
        operation_id="workers_leave",
        summary="Take leave",
        request=StandingInput,
        responses={204: None},
        description="It says goodbye; what it still holds is taken back.",
    )
    def post(self, request: Request, worker_id: UUID) -> Response:
        values = read_body(StandingInput, request)
        leases.dismiss_worker(_registration(request, worker_id, values["incarnation"]))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _registration(request: Request, worker_id: UUID, incarnation: object) -> Registration:
    return Registration(own_worker(request, worker_id).id, int(str(incarnation)))


def _fetch_seconds(claims: Sequence[Claimed]) -> int:
    """How long the addresses in one answer are good: all of it may come over one slow line, and the last byte last."""
    size = sum(claimed.size + sum(file.size for file in claimed.input_files()) for claimed in claims)
    return min(conf.DOWNLOAD_URL_SECONDS + size // conf.SLOWEST_FETCH_BYTES_A_SECOND, conf.MAX_DOWNLOAD_URL_SECONDS)


def _shown(claimed: Claimed, seconds: int) -> dict[str, object]:
    return {
        **asdict(claimed),
        "args": json.loads(claimed.args),
        "env": json.loads(claimed.env),
        "program": {"sha256": claimed.sha256, "size": claimed.size, "url": _address(claimed.sha256, seconds)},
        "inputs": [{**asdict(file), "url": _address(file.sha256, seconds)} for file in claimed.input_files()],
        "secrets": claimed.opened_secrets(),
    }


def _address(sha256: str, seconds: int) -> str:
    """Only of what the run is given: whoever holds the address can read the bytes."""
    return storage.presign_download(storage.artifact_key(sha256), "artifact", seconds=seconds)
