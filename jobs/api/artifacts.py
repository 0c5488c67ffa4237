"""/artifacts: announce a program, upload it straight to the object store, have it verified."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.fields import Sha256Field, StrictSerializer, WholeNumberField
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.repeating import Create, repeatable
from jobs.api.representations import AnnouncedOutput, ArtifactOutput
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.models import Artifact
from jobs.querysets.visibility import visible_to
from jobs.services.artifact_deletion import delete_artifact, with_use
from jobs.services.artifacts import announce_artifact, complete_artifact


class ArtifactInput(StrictSerializer):
    sha256 = Sha256Field(help_text="Of the bytes, in lower-case hexadecimal.")
    size = WholeNumberField(min_value=1, max_value=conf.MAX_ARTIFACT_BYTES)


class ListedArtifactOutput(ArtifactOutput):
    in_use = serializers.BooleanField(help_text="Whether a job or an unfinished execution may still run it.")

    class Meta(ArtifactOutput.Meta):
        fields = [*ArtifactOutput.Meta.fields, "in_use"]
        read_only_fields = fields


def artifacts_of(user: User) -> QuerySet[Artifact]:
    return visible_to(user, Artifact.objects.filter(deleted_at__isnull=True))


class Artifacts(ApiView):
    @extend_schema(
        operation_id="artifacts_list",
        summary="List artifacts",
        parameters=[PageQuery],
        responses=page_of(ListedArtifactOutput),
    )
    def get(self, request: Request) -> Response:
        read_query(PageQuery, request)
        return page(with_use(artifacts_of(user_of(request))), request, ListedArtifactOutput)

    @extend_schema(
        operation_id="artifacts_announce",
        summary="Announce an artifact",
        request=ArtifactInput,
        responses={201: AnnouncedOutput},
    )
    @repeatable(kept=timedelta(seconds=conf.UPLOAD_URL_SECONDS / 2))  # the address in the answer is good for longer
    def post(self, request: Request) -> Create:
        """`upload` is the one request that stores these bytes, straight in the object store; null: they are there."""
        values = read_body(ArtifactInput, request)
        owner = user_of(request)

        def create() -> Response:
            announced = announce_artifact(owner=owner, sha256=str(values["sha256"]), size=int(str(values["size"])))
            return Response(AnnouncedOutput(announced).data, status=status.HTTP_201_CREATED)

        return create


class ArtifactDetail(ApiView):
    @extend_schema(operation_id="artifacts_read", summary="Read an artifact", responses=ArtifactOutput)
    def get(self, request: Request, artifact_id: UUID) -> Response:
        return Response(ArtifactOutput(find(artifacts_of(user_of(request)), artifact_id)).data)

    @extend_schema(
        operation_id="artifacts_delete",
        summary="Delete an artifact",
        request=None,
        responses={204: None},
        description="Refused with 409 while a job that is not cancelled, or an unfinished execution, may run it.",
    )
    def delete(self, request: Request, artifact_id: UUID) -> Response:
        read_body(NoInput, request)
        find(artifacts_of(user_of(request)), artifact_id)
        delete_artifact(artifact_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ArtifactComplete(ApiView):
    @extend_schema(
        operation_id="artifacts_complete", summary="Complete an upload", request=None, responses=ArtifactOutput
    )
    def post(self, request: Request, artifact_id: UUID) -> Response:
        """Verifies what was uploaded; jobs may use it from then on. Doing it again changes nothing."""
        read_body(NoInput, request)
        artifact = complete_artifact(find(artifacts_of(user_of(request)), artifact_id))
        return Response(ArtifactOutput(artifact).data)
