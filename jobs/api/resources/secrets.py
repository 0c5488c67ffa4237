"""/secrets: encrypted, write-only values for jobs."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access import secrets
from jobs.api.framework.fields import EmptyInput, StrictSerializer, TextField
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.views import ApiView, get_or_404, paginate, read_body, read_query, require_user, respond_created
from jobs.domain import limits
from jobs.models import Secret
from jobs.models.visibility import visible_to


class SecretQuery(PageQuery):
    name = serializers.CharField(required=False, max_length=63, help_text="Filter by exact name.")


class SecretValueInput(StrictSerializer):
    value = TextField(
        write_only=True,
        help_text=f"Value of {limits.MIN_SECRET_BYTES} to {limits.MAX_SECRET_BYTES} bytes of UTF-8. Write-only.",
    )


class SecretInput(SecretValueInput):
    name = TextField(max_length=63, help_text="Name, unique among your secrets: letters, digits and . _ -")


class SecretOutput(serializers.ModelSerializer[Secret]):
    owner = serializers.CharField(source="owner.username")

    class Meta:
        model = Secret
        fields = ["id", "name", "owner", "version", "created_at", "updated_at"]
        read_only_fields = fields


def list_visible_secrets(user: User) -> QuerySet[Secret]:
    """Return visible secrets without their sealed values."""
    return visible_to(user, Secret.objects.defer("sealed")).select_related("owner")


class Secrets(ApiView):
    @extend_schema(
        operation_id="secrets_list",
        summary="List secrets",
        parameters=[SecretQuery],
        responses=build_page_serializer(SecretOutput),
    )
    def get(self, request: Request) -> Response:
        rows = list_visible_secrets(require_user(request))
        if (name := read_query(SecretQuery, request).get("name")) is not None:
            rows = rows.filter(name=name)
        return paginate(rows, request, SecretOutput)

    @extend_schema(
        operation_id="secrets_create", summary="Create a secret", request=SecretInput, responses={201: SecretOutput}
    )
    def post(self, request: Request) -> Response:
        """The value is encrypted, and no response contains it."""
        body = read_body(SecretInput, request)
        secret = secrets.create_secret(owner=require_user(request), name=str(body["name"]), value=str(body["value"]))
        return respond_created(request, secret.id, SecretOutput(secret).data)


class SecretDetail(ApiView):
    @extend_schema(operation_id="secrets_read", summary="Read a secret's metadata", responses=SecretOutput)
    def get(self, request: Request, secret_id: UUID) -> Response:
        return Response(SecretOutput(get_or_404(list_visible_secrets(require_user(request)), secret_id)).data)

    @extend_schema(
        operation_id="secrets_rotate", summary="Rotate a secret", request=SecretValueInput, responses=SecretOutput
    )
    def put(self, request: Request, secret_id: UUID) -> Response:
        """Set a new value; runs that a worker claims from now on use it."""
        body = read_body(SecretValueInput, request)
        rows = list_visible_secrets(require_user(request))
        get_or_404(rows, secret_id)
        secrets.rotate_secret(secret_id, value=str(body["value"]))
        return Response(SecretOutput(rows.get(id=secret_id)).data)

    @extend_schema(operation_id="secrets_delete", summary="Delete a secret", request=None, responses={204: None})
    def delete(self, request: Request, secret_id: UUID) -> Response:
        """Fails while jobs use the secret."""
        read_body(EmptyInput, request)
        get_or_404(list_visible_secrets(require_user(request)), secret_id)
        secrets.delete_secret(secret_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
