"""/secrets: values that jobs are given, written here and never read back."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.fields import StrictSerializer, TextField
from jobs.api.jobs import NoInput
from jobs.api.queries import PageQuery, page_of
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.models import Secret
from jobs.querysets.visibility import visible_to
from jobs.services import secrets


class SecretQuery(PageQuery):
    name = serializers.CharField(required=False, max_length=63, help_text="Only the one that is called so.")


class SecretValueInput(StrictSerializer):
    value = TextField(
        write_only=True,
        help_text=f"Text of {conf.MIN_SECRET_BYTES} to {conf.MAX_SECRET_BYTES} bytes of UTF-8; no answer repeats it.",
    )


class SecretInput(SecretValueInput):
    name = TextField(max_length=63, help_text="Yours alone: jobs call the secret by it. Letters, digits and . _ -")


class SecretOutput(serializers.ModelSerializer[Secret]):
    owner = serializers.CharField(source="owner.username")

    class Meta:
        model = Secret
        fields = ["id", "name", "owner", "version", "created_at", "updated_at"]
        read_only_fields = fields


def secrets_of(user: User) -> QuerySet[Secret]:
    """Without their bytes, which no page needs."""
    return visible_to(user, Secret.objects.defer("sealed")).select_related("owner")


class Secrets(ApiView):
    @extend_schema(
        operation_id="secrets_list", summary="List secrets", parameters=[SecretQuery], responses=page_of(SecretOutput)
    )
    def get(self, request: Request) -> Response:
        wanted = {"name": name} if (name := read_query(SecretQuery, request).get("name")) is not None else {}
        return page(secrets_of(user_of(request)).filter(**wanted), request, SecretOutput)

    @extend_schema(
        operation_id="secrets_create", summary="Create a secret", request=SecretInput, responses={201: SecretOutput}
    )
    def post(self, request: Request) -> Response:
        """What is in it is sealed and in no answer."""
        body = read_body(SecretInput, request)
        secret = secrets.create_secret(owner=user_of(request), name=str(body["name"]), value=str(body["value"]))
        return Response(
            SecretOutput(secret).data,
            status=status.HTTP_201_CREATED,
            headers={"Location": f"{request.path}/{secret.id}"},
        )


class SecretDetail(ApiView):
    @extend_schema(operation_id="secrets_read", summary="Read what is known of a secret", responses=SecretOutput)
    def get(self, request: Request, secret_id: UUID) -> Response:
        return Response(SecretOutput(find(secrets_of(user_of(request)), secret_id)).data)

    @extend_schema(
        operation_id="secrets_rotate", summary="Rotate a secret", request=SecretValueInput, responses=SecretOutput
    )
    def put(self, request: Request, secret_id: UUID) -> Response:
        """A new value: for every run that a worker claims from now on, of every job that is given it."""
        body = read_body(SecretValueInput, request)
        rows = secrets_of(user_of(request))
        find(rows, secret_id)
        secrets.rotate_secret(secret_id, value=str(body["value"]))
        return Response(SecretOutput(rows.get(id=secret_id)).data)

    @extend_schema(operation_id="secrets_delete", summary="Delete a secret", request=None, responses={204: None})
    def delete(self, request: Request, secret_id: UUID) -> Response:
        """Refused while jobs are given it."""
        read_body(NoInput, request)
        find(secrets_of(user_of(request)), secret_id)
        secrets.delete_secret(secret_id)
        return Response(status=status.HTTP_204_NO_CONTENT)
