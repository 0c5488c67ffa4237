"""/artifacts: announce a file, upload it to the object store, have it verified."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api.framework.fields import EmptyInput, Sha256Field, StrictIntegerField, StrictSerializer
from jobs.api.framework.idempotency import Create, idempotent
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import ApiView, get_or_404, paginate, read_body, read_query, require_user
from jobs.api.resources.representations import ArtifactOutput, ArtifactUploadOutput
from jobs.domain import limits
from jobs.models import Artifact
from jobs.models.visibility import visible_to
from jobs.storage.artifact_deletion import annotate_in_use, delete_artifact
from jobs.storage.artifacts import announce_artifact, complete_artifact


class ArtifactInput(StrictSerializer):
    sha256 = Sha256Field(help_text="SHA-256 of the file, in lower-case hexadecimal.")
    size = StrictIntegerField(min_value=1, max_value=limits.MAX_ARTIFACT_BYTES)


class ListedArtifactOutput(ArtifactOutput):
    in_use = serializers.BooleanField(help_text="Whether a job or an unfinished execution uses it.")

    class Meta(ArtifactOutput.Meta):
        fields = [*ArtifactOutput.Meta.fields, "in_use"]
        read_only_fields = fields


def list_visible_artifacts(user: User) -> QuerySet[Artifact]:
    return visible_to(user, Artifact.objects.filter(deleted_at__isnull=True))


class Artifacts(ApiView):
    @extend_schema(
        operation_id="artifacts_list",
        summary="List artifacts",
        parameters=[PageQuery],
        responses=build_page_serializer(ListedArtifactOutput),
    )
    def get(self, request: Request) -> Response:
        read_query(PageQuery, request)
        return paginate(annotate_in_use(list_visible_artifacts(require_user(request))), request, ListedArtifactOutput)

    @extend_schema(
        operation_id="artifacts_announce",
        summary="Announce an artifact",
        request=ArtifactInput,
        responses={201: ArtifactUploadOutput},
    )
    @idempotent(kept=timedelta(seconds=limits.UPLOAD_URL_SECONDS / 2))  # the URL in the answer stays valid longer
    def post(self, request: Request) -> Create:
        """Get the request that uploads the file to the object store: `upload`, or null if it is already stored."""
        values = read_body(ArtifactInput, request)
        owner = require_user(request)

        def create() -> Response:
            announced = announce_artifact(owner=owner, sha256=str(values["sha256"]), size=int(str(values["size"])))
            return Response(ArtifactUploadOutput(announced).data, status=status.HTTP_201_CREATED)

        return create


class ArtifactDetail(ApiView):
    @extend_schema(operation_id="artifacts_read", summary="Read an artifact", responses=ArtifactOutput)
    def get(self, request: Request, artifact_id: UUID) -> Response:
        return Response(ArtifactOutput(get_or_404(list_visible_artifacts(require_user(request)), artifact_id)).data)

    @extend_schema(
        operation_id="artifacts_delete",
        summary="Delete an artifact",
        request=None,
        responses={204: None},
        description="Fails with 409 while an active job or an unfinished execution uses the artifact.",
    )
    def delete(self, request: Request, artifact_id: UUID) -> Response:
        read_body(EmptyInput, request)
        get_or_404(list_visible_artifacts(require_user(request)), artifact_id)
        delete_artifact(artifact_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class ArtifactComplete(ApiView):
    @extend_schema(
        operation_id="artifacts_complete", summary="Complete an upload", request=None, responses=ArtifactOutput
    )
    def post(self, request: Request, artifact_id: UUID) -> Response:
        """Verify the uploaded file, after which jobs may use it. Idempotent."""
        read_body(EmptyInput, request)
        artifact = complete_artifact(get_or_404(list_visible_artifacts(require_user(request)), artifact_id))
        return Response(ArtifactOutput(artifact).data)
