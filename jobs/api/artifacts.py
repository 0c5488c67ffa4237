"""/artifacts: announce a program, upload it straight to the object store, have it verified."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.fields import StrictSerializer, WholeNumberField
from jobs.api.jobs import NoInput
from jobs.api.representations import AnnouncedOutput, ArtifactOutput
from jobs.api.views import ApiView, find, read_body, user_of
from jobs.models import Artifact
from jobs.querysets.visibility import visible_to
from jobs.services.artifacts import announce_artifact, complete_artifact


class ArtifactInput(StrictSerializer):
    sha256 = serializers.RegexField(
        r"^[0-9a-f]{64}\Z", trim_whitespace=False, help_text="Of the bytes, in lower-case hexadecimal."
    )
    size = WholeNumberField(min_value=1, max_value=conf.MAX_ARTIFACT_BYTES)


def artifacts_of(user: User) -> QuerySet[Artifact]:
    return visible_to(user, Artifact.objects.all())


class Artifacts(ApiView):
    @extend_schema(operation_id="artifacts_announce", request=ArtifactInput, responses={201: AnnouncedOutput})
    def post(self, request: Request) -> Response:
        values = read_body(ArtifactInput, request)
        announced = announce_artifact(
            owner=user_of(request), sha256=str(values["sha256"]), size=int(str(values["size"]))
        )
        return Response(AnnouncedOutput(announced).data, status=status.HTTP_201_CREATED)


class ArtifactDetail(ApiView):
    @extend_schema(operation_id="artifacts_read", responses=ArtifactOutput)
    def get(self, request: Request, artifact_id: UUID) -> Response:
        return Response(ArtifactOutput(find(artifacts_of(user_of(request)), artifact_id)).data)


class ArtifactComplete(ApiView):
    @extend_schema(operation_id="artifacts_complete", request=None, responses=ArtifactOutput)
    def post(self, request: Request, artifact_id: UUID) -> Response:
        read_body(NoInput, request)
        artifact = complete_artifact(find(artifacts_of(user_of(request)), artifact_id))
        return Response(ArtifactOutput(artifact).data)
