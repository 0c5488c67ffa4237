"""/tokens and /login: made, shown once, listed without their secrets, revoked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs import conf
from jobs.api.fields import InstantField, NameField, OneOfField, StrictSerializer, TextField, WholeNumberField
from jobs.api.jobs import NoInput
from jobs.api.origin import address_of
from jobs.api.permissions import scope_of
from jobs.api.queries import PageQuery, page_of
from jobs.api.views import ApiView, find, page, read_body, read_query, user_of
from jobs.errors import InvalidInput, NotFound
from jobs.models import LADDER, ApiToken, TokenScope
from jobs.querysets.visibility import visible_to
from jobs.services import tokens
from jobs.services.logins import log_in

Made = tuple[ApiToken, str]


class TokenInput(StrictSerializer):
    name = TextField(max_length=100, help_text="What it is for, such as the machine that keeps it.")
    scope = OneOfField(
        TokenScope.values,
        default=TokenScope.READ.value,
        help_text="What it may do. Each includes those before it; only staff makes tokens of scope `worker`.",
    )
    pool = TextField(
        max_length=63, default="", allow_blank=True, help_text="Of a worker's token: the only pool that it may join."
    )
    expires_in_days = WholeNumberField(
        required=False, min_value=1, max_value=conf.MAX_TOKEN_DAYS, help_text="Default: what the server is set to, 90."
    )
    expires_at = InstantField(required=False, allow_null=True, help_text="Or when. Null: never.")


class LoginInput(StrictSerializer):
    username = NameField(max_length=150)
    password = TextField(max_length=4096, write_only=True)
    scope = OneOfField([scope.value for scope in LADDER], default=TokenScope.ADMIN.value)
    name = NameField(max_length=100, default="login", help_text="What the token is for.")


class TokenOutput(serializers.ModelSerializer[ApiToken]):
    owner = serializers.CharField(source="owner.username")

    class Meta:
        model = ApiToken
        fields = [
            "id", "name", "owner", "scope", "pool", "created_at", "expires_at", "revoked_at", "last_used_at",
        ]  # fmt: skip
        read_only_fields = fields


class MadeTokenOutput(TokenOutput):
    token = serializers.CharField(help_text="What is sent as `Authorization: Bearer …`. Shown this once.")

    class Meta(TokenOutput.Meta):
        fields = [*TokenOutput.Meta.fields, "token"]
        read_only_fields = fields


def tokens_of(user: User) -> QuerySet[ApiToken]:
    return visible_to(user, ApiToken.objects.select_related("owner"))


class Tokens(ApiView):
    @extend_schema(
        operation_id="tokens_list", summary="List tokens", parameters=[PageQuery], responses=page_of(TokenOutput)
    )
    def get(self, request: Request) -> Response:
        """Also those that have expired or were revoked."""
        read_query(PageQuery, request)
        return page(tokens_of(user_of(request)), request, TokenOutput)

    @extend_schema(
        operation_id="tokens_create", summary="Create a token", request=TokenInput, responses={201: MadeTokenOutput}
    )
    def post(self, request: Request) -> Response:
        """Its secret is in this answer and nowhere else: a lost one is revoked and made anew."""
        body = read_body(TokenInput, request)
        made = tokens.issue_token(
            owner=user_of(request),
            name=str(body["name"]),
            scope=TokenScope(str(body["scope"])),
            maker_scope=scope_of(request),
            pool=str(body["pool"]),
            expires_at=_expiry(body),
        )
        return _shown(made, f"{request.path}/{made[0].id}")


class TokenSelf(ApiView):
    @extend_schema(operation_id="tokens_self", summary="Read the token in use", responses=TokenOutput)
    def get(self, request: Request) -> Response:
        """The token that this request is sent with."""
        return Response(TokenOutput(_own(request)).data)

    @extend_schema(
        operation_id="tokens_revoke_self", summary="Revoke the token in use", request=None, responses={204: None}
    )
    def delete(self, request: Request) -> Response:
        """Whatever its scope: who holds a token may give it up."""
        read_body(NoInput, request)
        tokens.revoke_token(_own(request).id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class TokenDetail(ApiView):
    @extend_schema(operation_id="tokens_read", summary="Read a token", responses=TokenOutput)
    def get(self, request: Request, token_id: UUID) -> Response:
        return Response(TokenOutput(find(tokens_of(user_of(request)), token_id)).data)

    @extend_schema(operation_id="tokens_revoke", summary="Revoke a token", request=None, responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """It is refused from now on, and stays in the list."""
        read_body(NoInput, request)
        find(tokens_of(user_of(request)), token_id)
        tokens.revoke_token(token_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class Login(ApiView):
    # A cookie or a token that is no longer good must not stand in the way of a new one.
    authentication_classes = []

    @extend_schema(
        operation_id="login", summary="Log in", request=LoginInput, responses={201: MadeTokenOutput}, auth=[]
    )
    def post(self, request: Request) -> Response:
        """A token for a name and a password. Tries that fail are limited for each user and each address."""
        body = read_body(LoginInput, request)
        user = log_in(
            username=str(body["username"]),
            password=str(body["password"]),
            address=address_of(request._request) or "",
        )
        made = tokens.issue_token(
            owner=user,
            name=str(body["name"]),
            scope=TokenScope(str(body["scope"])),
            maker_scope=TokenScope.ADMIN,
            expires_at=tokens.expiry_after(),
        )
        return _shown(made)


def _own(request: Request) -> ApiToken:
    if not isinstance(request.auth, ApiToken):
        raise NotFound("This request came without a token: it is of a browser that has logged in.")
    return request.auth


def _expiry(body: Mapping[str, object]) -> datetime | None:
    if "expires_at" not in body:
        return tokens.expiry_after(cast("int | None", body.get("expires_in_days")))
    if "expires_in_days" in body:
        raise InvalidInput("expires_at", "Say either expires_at or expires_in_days.")
    return cast("datetime | None", body["expires_at"])


def _shown(made: Made, location: str | None = None) -> Response:
    token, secret = made
    headers = {"Cache-Control": "no-store"} | ({"Location": location} if location else {})
    return Response(TokenOutput(token).data | {"token": secret}, status=status.HTTP_201_CREATED, headers=headers)
