"""Secrets: values that jobs receive. The server stores them and never returns them."""

from __future__ import annotations

from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, int_field, text_field
from punctual_client.resources.base import ApiCalls, filter_fields, path_segment


@dataclass(frozen=True)
class Secret:
    """The metadata of a secret, without its value."""

    id: str
    name: str
    owner: str
    version: int
    updated_at: str
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Secret:
        return cls(
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            owner=text_field(data, "owner"),
            version=int_field(data, "version"),
            updated_at=text_field(data, "updated_at"),
            raw=data,
        )


class SecretCalls(ApiCalls):
    def secrets(self, *, name: str | None = None, limit: int = 50) -> list[Secret]:
        return [Secret.parse(item) for item in self._list("secrets", filter_fields(name=name), limit)]

    def secret(self, secret_id: str) -> Secret:
        return Secret.parse(self._transport.get(f"secrets/{path_segment(secret_id)}"))

    def create_secret(self, name: str, value: str) -> Secret:
        return Secret.parse(self._transport.send("POST", "secrets", {"name": name, "value": value}))

    def rotate_secret(self, secret_id: str, value: str) -> Secret:
        return Secret.parse(self._transport.send("PUT", f"secrets/{path_segment(secret_id)}", {"value": value}))

    def delete_secret(self, secret_id: str) -> None:
        self._transport.send("DELETE", f"secrets/{path_segment(secret_id)}")
