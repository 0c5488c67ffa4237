"""Type-checked access to the fields of the server's JSON; a mismatch suggests another server version."""

from __future__ import annotations

from collections.abc import Mapping

from punctual_client.errors import ServerError

JsonObject = Mapping[str, object]


def as_object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ServerError("The server's answer is not one that this version of punctual understands.")
    return value


def as_objects(value: object) -> list[JsonObject]:
    if not isinstance(value, list):
        raise ServerError("The server's answer is not the list that this version of punctual expects.")
    return [as_object(item) for item in value]


def text_field(data: JsonObject, key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ServerError(f"The server's answer has no {key!r}: it may be of another version.")
    return value


def int_field(data: JsonObject, key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int):
        raise ServerError(f"The server's answer has no {key!r}: it may be of another version.")
    return value


def optional_text_field(data: JsonObject, key: str) -> str | None:
    return None if data.get(key) is None else text_field(data, key)


def text_list_field(data: JsonObject, key: str) -> tuple[str, ...]:
    """Return the items as text; nothing if the field is missing."""
    value = data.get(key)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def optional_int_field(data: JsonObject, key: str) -> int | None:
    return None if data.get(key) is None else int_field(data, key)
