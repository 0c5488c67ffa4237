"""Tokens, as the server answers them: without their secret, but for the one answer that makes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cli.answers import JsonObject, optional_text, text


@dataclass(frozen=True)
class Token:
    id: str
    name: str
    owner: str
    scope: str
    expires_at: str | None
    revoked_at: str | None
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Token:
        return cls(
            id=text(data, "id"),
            name=text(data, "name"),
            owner=text(data, "owner"),
            scope=text(data, "scope"),
            expires_at=optional_text(data, "expires_at"),
            revoked_at=optional_text(data, "revoked_at"),
            raw=data,
        )


@dataclass(frozen=True)
class MadeToken:
    token: Token
    secret: str = field(repr=False)

    @classmethod
    def parse(cls, data: JsonObject) -> MadeToken:
        return cls(token=Token.parse(data), secret=text(data, "token"))
