"""API tokens: create, list and revoke them, and log in with a password to get the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, int_field, optional_text_field, text_field
from punctual_client.resources.base import ApiCalls, path_segment


@dataclass(frozen=True)
class Token:
    """The metadata of a token, without its secret."""

    id: str
    name: str
    owner: str
    scope: str
    expires_at: str | None
    revoked_at: str | None
    in_force: bool
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Token:
        return cls(
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            owner=text_field(data, "owner"),
            scope=text_field(data, "scope"),
            expires_at=optional_text_field(data, "expires_at"),
            revoked_at=optional_text_field(data, "revoked_at"),
            in_force=data.get("in_force") is not False,
            raw=data,
        )


@dataclass(frozen=True)
class CreatedToken:
    """A new token with its secret, which no other answer contains."""

    token: Token
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, data: JsonObject) -> CreatedToken:
        return cls(token=Token.parse(data), secret=text_field(data, "token"))


class TokenCalls(ApiCalls):
    def log_in(self, username: str, password: str, *, scope: str, name: str) -> CreatedToken:
        body = {"username": username, "password": password, "scope": scope, "name": name}
        return CreatedToken.parse(self._transport.send("POST", "login", body))

    def tokens(self, *, limit: int = 50) -> list[Token]:
        return [Token.parse(item) for item in self._list("tokens", {}, limit)]

    def token(self, token_id: str) -> Token:
        return Token.parse(self._transport.get(f"tokens/{path_segment(token_id)}"))

    def own_token(self) -> Token:
        """Return the token that this client sends."""
        return Token.parse(self._transport.get("tokens/self"))

    def create_token(
        self,
        name: str,
        *,
        scope: str,
        days: int | None = None,
        never: bool = False,
        pool: str = "",
        any_pool: bool = False,
        max_workers: int | None = None,
        secrets: Sequence[str] | None = None,
    ) -> CreatedToken:
        """Create a token that expires after `days`, never, or after the server's default period.

        A worker token names its pool or allows any. `secrets` are the names of the secrets that the token may give to
        jobs, or `*` for all; None: the server's default for the scope.
        """
        body: dict[str, object] = {"name": name, "scope": scope}
        if secrets is not None:
            body["secrets"] = list(secrets)
        if pool:
            body["pool"] = pool
        if any_pool:
            body["any_pool"] = True
        if max_workers is not None:
            body["max_workers"] = max_workers
        if never:
            body["expires_at"] = None
        elif days is not None:
            body["expires_in_days"] = days
        return CreatedToken.parse(self._transport.send("POST", "tokens", body))

    def revoke_token(self, token_id: str) -> None:
        self._transport.send("DELETE", f"tokens/{path_segment(token_id)}")

    def revoke_all_tokens(self, *, workers: bool = False) -> int:
        """Revoke all tokens of this user, the one this client sends included; return how many."""
        path = f"tokens?all=true{'&workers=true' if workers else ''}"
        return int_field(self._transport.send("DELETE", path), "revoked")

    def revoke_own_token(self) -> None:
        self._transport.send("DELETE", "tokens/self")
