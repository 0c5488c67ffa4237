"""/tokens and /login: issue API tokens, list them without their secrets, revoke them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.access import tokens
from jobs.access.login import log_in
from jobs.access.login_audit import record_login
from jobs.api.framework.fields import (
    BoundedListField,
    EmptyInput,
    InstantField,
    NameField,
    OneOfField,
    StrictBooleanField,
    StrictIntegerField,
    StrictSerializer,
    TextField,
)
from jobs.api.framework.permissions import get_grantable_secrets, get_request_scope
from jobs.api.framework.query_params import PageQuery, build_page_serializer
from jobs.api.framework.request_actor import resolve_client_address
from jobs.api.framework.views import ApiView, get_or_404, paginate, read_body, read_query, require_user
from jobs.domain import limits
from jobs.domain.errors import InvalidInput, NotFound
from jobs.models import SCOPE_LADDER, ApiToken, TokenScope
from jobs.models.visibility import visible_to

IssuedToken = tuple[ApiToken, str]


class TokenInput(StrictSerializer):
    name = TextField(max_length=100, help_text="What the token is for, such as the name of the machine that uses it.")
    scope = OneOfField(
        TokenScope.values,
        default=TokenScope.READ.value,
        help_text="Permissions of the token. Each scope includes those before it; `worker` is separate and for staff.",
    )
    pool = TextField(
        max_length=63, default="", allow_blank=True, help_text="Worker tokens only: restrict the token to this pool."
    )
    secrets = BoundedListField(
        child=TextField(max_length=63),
        required=False,
        max_length=limits.MAX_SECRETS_PER_TOKEN,
        help_text="Names of the secrets that the token may grant to jobs, or `*` for all. Default: none for `submit`,"
        " all for `operate` and `admin`.",
    )
    any_pool = StrictBooleanField(
        default=False,
        help_text="Worker tokens only: required instead of `pool` to allow every pool, and so every run and secret.",
    )
    max_workers = StrictIntegerField(
        required=False,
        min_value=1,
        max_value=limits.MAX_WORKERS_PER_TOKEN,
        help_text="Worker tokens only: maximum number of workers that use it at the same time. Default: 1.",
    )
    expires_in_days = StrictIntegerField(
        required=False,
        min_value=1,
        max_value=limits.MAX_TOKEN_DAYS,
        help_text="Days until expiry. Default: set by the server, 90 unless configured, 365 for workers.",
    )
    expires_at = InstantField(
        required=False, allow_null=True, help_text="Expiry instead of `expires_in_days`; null for never."
    )


class LoginInput(StrictSerializer):
    username = NameField(max_length=150)
    password = TextField(max_length=4096, write_only=True)
    scope = OneOfField([scope.value for scope in SCOPE_LADDER], default=TokenScope.ADMIN.value)
    name = NameField(max_length=100, default="login", help_text="What the token is for.")


class TokenOutput(serializers.ModelSerializer[ApiToken]):
    owner = serializers.CharField(source="owner.username")
    any_pool = serializers.SerializerMethodField(help_text="Worker tokens only: whether they may join any pool.")
    max_workers = serializers.SerializerMethodField(
        help_text="Worker tokens only: maximum number of workers that use it at the same time."
    )
    in_force = serializers.SerializerMethodField(
        help_text="Whether the token works: false once it is revoked or expired, or its owner's password has changed."
    )

    class Meta:
        model = ApiToken
        fields = [
            "id", "name", "owner", "scope", "secrets", "pool", "any_pool", "max_workers", "created_at", "expires_at",
            "revoked_at", "last_used_at", "in_force",
        ]  # fmt: skip
        read_only_fields = fields

    def get_any_pool(self, token: ApiToken) -> bool | None:
        return not token.pool if token.scope == TokenScope.WORKER else None

    def get_max_workers(self, token: ApiToken) -> int | None:
        return token.max_workers if token.scope == TokenScope.WORKER else None

    def get_in_force(self, token: ApiToken) -> bool:
        return tokens.is_in_force(token, datetime.now(UTC))


class RevokeAllQuery(StrictSerializer):
    all = OneOfField(["true"], help_text="Confirm: revoke all of your tokens, including the one in use.")
    workers = OneOfField(
        ["true", "false"], default="false", help_text="Also revoke worker tokens, which stops their workers."
    )


class RevokedOutput(serializers.Serializer[Any]):
    revoked = serializers.IntegerField(help_text="Number of tokens revoked.")


class IssuedTokenOutput(TokenOutput):
    token = serializers.CharField(help_text="Token for `Authorization: Bearer …`. Shown only once.")

    class Meta(TokenOutput.Meta):
        fields = [*TokenOutput.Meta.fields, "token"]
        read_only_fields = fields


def list_visible_tokens(user: User) -> QuerySet[ApiToken]:
    return visible_to(user, ApiToken.objects.select_related("owner"))


class Tokens(ApiView):
    @extend_schema(
        operation_id="tokens_list",
        summary="List tokens",
        parameters=[PageQuery],
        responses=build_page_serializer(TokenOutput),
    )
    def get(self, request: Request) -> Response:
        """List all tokens, including expired and revoked ones."""
        read_query(PageQuery, request)
        return paginate(list_visible_tokens(require_user(request)), request, TokenOutput)

    @extend_schema(
        operation_id="tokens_create", summary="Create a token", request=TokenInput, responses={201: IssuedTokenOutput}
    )
    def post(self, request: Request) -> Response:
        """The token itself is in this response only. If you lose it, revoke it and create another."""
        body = read_body(TokenInput, request)
        issued = tokens.issue_token(
            owner=require_user(request),
            name=str(body["name"]),
            scope=TokenScope(str(body["scope"])),
            maker_scope=get_request_scope(request),
            maker=request.auth if isinstance(request.auth, ApiToken) else None,
            secrets=cast("list[str] | None", body.get("secrets")),
            maker_secrets=get_grantable_secrets(request, owner_id=require_user(request).pk),
            pool=str(body["pool"]),
            any_pool=bool(body["any_pool"]),
            max_workers=cast("int | None", body.get("max_workers")),
            expires_at=_resolve_expiry(body),
        )
        return _build_issued_response(issued, f"{request.path}/{issued[0].id}")

    @extend_schema(
        operation_id="tokens_revoke_all",
        summary="Revoke all of your tokens",
        parameters=[RevokeAllQuery],
        request=None,
        responses={200: RevokedOutput},
    )
    def delete(self, request: Request) -> Response:
        """Revoke the caller's own tokens, also for staff; worker tokens only with `workers=true`."""
        read_body(EmptyInput, request)
        query = read_query(RevokeAllQuery, request)
        revoked = tokens.revoke_tokens(require_user(request), workers=query["workers"] == "true")
        return Response(RevokedOutput({"revoked": revoked}).data)


class TokenSelf(ApiView):
    @extend_schema(operation_id="tokens_self", summary="Read the token in use", responses=TokenOutput)
    def get(self, request: Request) -> Response:
        """Return the token that authenticates this request."""
        return Response(TokenOutput(_require_own_token(request)).data)

    @extend_schema(
        operation_id="tokens_revoke_self", summary="Revoke the token in use", request=None, responses={204: None}
    )
    def delete(self, request: Request) -> Response:
        """Revoke the token that authenticates this request, whatever its scope."""
        read_body(EmptyInput, request)
        tokens.revoke_token(_require_own_token(request).id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class TokenDetail(ApiView):
    @extend_schema(operation_id="tokens_read", summary="Read a token", responses=TokenOutput)
    def get(self, request: Request, token_id: UUID) -> Response:
        return Response(TokenOutput(get_or_404(list_visible_tokens(require_user(request)), token_id)).data)

    @extend_schema(operation_id="tokens_revoke", summary="Revoke a token", request=None, responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Revoke a token at once. It stays in the list."""
        read_body(EmptyInput, request)
        get_or_404(list_visible_tokens(require_user(request)), token_id)
        tokens.revoke_token(token_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class Login(ApiView):
    # An expired cookie or token must not prevent a login.
    authentication_classes = []

    @extend_schema(
        operation_id="login", summary="Log in", request=LoginInput, responses={201: IssuedTokenOutput}, auth=[]
    )
    def post(self, request: Request) -> Response:
        """Exchange user name and password for a token. Failed logins are limited per user and per address."""
        body = read_body(LoginInput, request)
        user = log_in(
            username=str(body["username"]),
            password=str(body["password"]),
            address=resolve_client_address(request._request) or "",
        )
        record_login(user)
        issued = tokens.issue_token(
            owner=user,
            name=str(body["name"]),
            scope=(scope := TokenScope(str(body["scope"]))),
            maker_scope=TokenScope.ADMIN,
            expires_at=tokens.compute_expiry(scope),
        )
        return _build_issued_response(issued)


def _require_own_token(request: Request) -> ApiToken:
    if not isinstance(request.auth, ApiToken):
        raise NotFound("This request uses a browser session, not a token.")
    return request.auth


def _resolve_expiry(body: Mapping[str, object]) -> datetime | None:
    if "expires_at" not in body:
        scope, days = TokenScope(str(body["scope"])), cast("int | None", body.get("expires_in_days"))
        return tokens.compute_expiry(scope, days)
    if "expires_in_days" in body:
        raise InvalidInput("expires_at", "Give either expires_at or expires_in_days.")
    return cast("datetime | None", body["expires_at"])


def _build_issued_response(issued: IssuedToken, location: str | None = None) -> Response:
    token, secret = issued
    headers = {"Cache-Control": "no-store"} | ({"Location": location} if location else {})
    return Response(TokenOutput(token).data | {"token": secret}, status=status.HTTP_201_CREATED, headers=headers)
