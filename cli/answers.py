"""What an answer of the server must hold, read with its type checked: one of another version is said to be one."""

from __future__ import annotations

from collections.abc import Mapping

from cli.errors import ServerFailureError

JsonObject = Mapping[str, object]


def as_object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise ServerFailureError("The server's answer is not what this version of punctual understands.")
    return value


def as_objects(value: object) -> list[JsonObject]:
    if not isinstance(value, list):
        raise ServerFailureError("The server's answer is not the list that this version of punctual expects.")
    return [as_object(item) for item in value]


def text(data: JsonObject, key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ServerFailureError(f"The server's answer has no {key!r}: it may be of another version.")
    return value


def number(data: JsonObject, key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int):
        raise ServerFailureError(f"The server's answer has no {key!r}: it may be of another version.")
    return value


def optional_text(data: JsonObject, key: str) -> str | None:
    return None if data.get(key) is None else text(data, key)


def texts(data: JsonObject, key: str) -> tuple[str, ...]:
    """None, where an older server does not say it."""
    value = data.get(key)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def optional_number(data: JsonObject, key: str) -> int | None:
    return None if data.get(key) is None else number(data, key)
