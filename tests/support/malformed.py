"""Derives invalid input from the published schema, for every body field and parameter.

Made from the OpenAPI schema, so that a new operation or field is covered without a line about it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
Path = tuple[str | int, ...]

NOBODY = "00000000-0000-7000-8000-000000000000"
KEY = "key"  # of an object with arbitrary keys
ENDLESS = "x" * 1_200_000  # longer than any text may be
MANY = 1_500  # longer than any list may be
MOST_AT_ONCE = 40  # somewhat above the number of reported errors
# Python's JSON encoder cannot write it, and its decoder reads it as infinity.
_BEYOND_FLOAT = "\0beyond float\0"
_NO_TEXT = ("a\0b", "a\ud800b")


@dataclass(frozen=True)
class Wrong:
    path: Path
    value: Any
    alone: bool = False  # hides all other errors of the body

    def __str__(self) -> str:
        return f"{self.field} = {self.value!r:.60}"

    @property
    def field(self) -> str:
        return ".".join(map(str, self.path))

    def is_named(self, fields: Iterable[str]) -> bool:
        """Check whether an error names the field, a part of it, or the list or object that contains it."""
        names = {self.field, ".".join(map(str, self.path[:-1]))} if self.path[-1] in (0, KEY) else {self.field}
        return any(each in names or each.startswith(f"{self.field}.") for each in fields)

    def fits(self, other: Wrong) -> bool:
        """Check whether both can be invalid in one body."""
        shorter = min(len(self.path), len(other.path))
        return not (self.alone or other.alone) and self.path[:shorter] != other.path[:shorter]


class Document:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def writes(self) -> Iterator[tuple[str, str, Schema | None]]:
        """Yield method, path and body schema, None without a body."""
        for path, operations in self._schema["paths"].items():
            for method, operation in operations.items():
                if method != "get":
                    content = operation.get("requestBody", {}).get("content", {})
                    yield method, path, self._plain(content["application/json"]["schema"]) if content else None

    def parameters(self) -> Iterator[tuple[str, str, Schema]]:
        """Yield path, name and schema of every query parameter."""
        for path, operations in self._schema["paths"].items():
            for each in operations.get("get", {}).get("parameters", []):
                if each["in"] == "query":
                    yield path, each["name"], self._plain(each["schema"])

    def operations(self) -> Iterator[tuple[str, str]]:
        return ((method, path) for path, operations in self._schema["paths"].items() for method in operations)

    def wrongs(self, schema: Schema, path: Path = ()) -> Iterator[Wrong]:
        """Yield invalid values of every field, at any depth."""
        schema = self._plain(schema)
        if path:
            for value in self._wrong_values(schema):
                yield Wrong(path, value, alone=value == ENDLESS)
        for name, inner in schema.get("properties", {}).items():
            yield from self.wrongs(inner, (*path, name))
        if "properties" in schema:
            yield Wrong((*path, "colour"), "red", alone=True)
        if "array" in _kinds(schema):
            yield from self.wrongs(schema["items"], (*path, 0))
        if inner := schema.get("additionalProperties"):
            yield from self.wrongs(inner, (*path, KEY))
            for name in ("", *_NO_TEXT, "x" * 100_000):
                yield Wrong(path, {name: self._sample(inner)})
            yield Wrong(path, {f"k{number}": self._sample(inner) for number in range(MANY)})

    def written(self, schema: Schema, valid: Mapping[str, Any], wrongs: Iterable[Wrong]) -> str:
        """Return the body with all of these invalid values."""
        body: Any = copy.deepcopy(dict(valid))
        for wrong in wrongs:
            at, inner = body, schema
            for part in wrong.path[:-1]:
                inner = self._within(inner, part)
                if part == 0:
                    at[:] = at or [self._sample(inner)]
                elif not at.get(part):
                    # The invalid value needs a parent to be in.
                    at[part] = self._sample(inner)
                at = at[part]
            if wrong.path[-1] == 0:
                at[:] = [wrong.value]
            else:
                at[wrong.path[-1]] = wrong.value
        return json.dumps(body).replace(json.dumps(_BEYOND_FLOAT), "1e400")

    def _plain(self, schema: Schema) -> Schema:
        """Return the schema with its reference resolved."""
        if "$ref" in schema:
            target = self._schema
            for name in schema["$ref"].removeprefix("#/").split("/"):
                target = target[name]
            return self._plain(target)
        if "allOf" in schema:
            (one,) = schema["allOf"]
            return self._plain(one)
        if "oneOf" in schema:
            (one,) = (each for each in schema["oneOf"] if each.get("type") != "null")
            kind = self._plain(one)
            return {**kind, "type": [kind["type"], "null"]}
        return schema

    def _within(self, schema: Schema, part: str | int) -> Schema:
        schema = self._plain(schema)
        inner = schema["items"] if part == 0 else schema.get("properties", {}).get(part)
        return self._plain(inner or schema["additionalProperties"])

    def _sample(self, schema: Schema) -> Any:
        """Return a minimal value of the schema's shape."""
        schema = self._plain(schema)
        kinds = _kinds(schema)
        if "enum" in schema:
            return schema["enum"][0]
        if "object" in kinds:
            return {name: self._sample(schema["properties"][name]) for name in schema.get("required", ())}
        if "array" in kinds:
            return [self._sample(schema["items"])]
        if kinds & {"integer", "number"}:
            return schema.get("minimum", 1)
        formats = {"uuid": NOBODY, "date": "2030-01-01", "date-time": "2030-01-01T00:00:00Z"}
        return formats.get(schema.get("format", ""), "x")

    def _wrong_values(self, schema: Schema) -> Iterator[Any]:
        kinds = _kinds(schema)
        if not kinds:
            # Any JSON that can be stored.
            yield from (_NO_TEXT[0], {"a": _NO_TEXT[1]}, {_NO_TEXT[0]: 1}, _BEYOND_FLOAT, _nested(500), [ENDLESS])
            return
        if "null" not in kinds:
            yield None
        others = {"string": "x", "integer": 7, "number": 7.5, "boolean": True, "array": [], "object": {}}
        if "number" in kinds:
            del others["integer"]
        yield from (value for kind, value in others.items() if kind not in kinds)
        if "string" in kinds:
            yield from _wrong_texts(schema)
        if kinds & {"integer", "number"}:
            yield from _wrong_numbers(schema)
        if "boolean" in kinds:
            yield from ("true", "yes", 1, 0)
        if "array" in kinds:
            yield [self._sample(schema["items"])] * (schema.get("maxItems", MANY) + 1)


def together(wrongs: Iterable[Wrong]) -> list[list[Wrong]]:
    """Group invalid values into as few bodies as possible, since one rejection reports all errors of shape."""
    groups: list[list[Wrong]] = []
    for wrong in wrongs:
        for group in groups:
            if len(group) < MOST_AT_ONCE and all(wrong.fits(other) for other in group):
                group.append(wrong)
                break
        else:
            groups.append([wrong])
    return groups


def wrong_words(schema: Schema) -> Iterator[str]:
    """Return invalid values of a query parameter, which is always text."""
    yield from ("a\0b", "")
    if schema["type"] == "integer":
        yield from ("x", "1e1", "1_0", "0x1", "5.0", " 5", "\u0665", "9" * 30, "9" * 5000, "true")
        yield from (str(schema[end] + step) for end, step in (("minimum", -1), ("maximum", 1)) if end in schema)
    if schema["type"] == "boolean":
        yield from ("maybe", "2")
    if "enum" in schema or "format" in schema:
        yield from ("x", "7")
    if schema.get("format") == "date-time":
        yield from _WRONG_INSTANTS
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)


_WRONG_INSTANTS = ("2030-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "2030-02-30T00:00:00Z", "1893456000")


def _wrong_texts(schema: Schema) -> Iterator[str]:
    yield from _NO_TEXT
    yield "x" * (schema["maxLength"] + 1) if "maxLength" in schema else ENDLESS
    if "enum" in schema or schema.get("format") in ("uuid", "date", "date-time"):
        yield from ("", "x", "7", "\uff12\uff10\uff13\uff10-01-01")
    if schema.get("format") == "date-time":
        yield from _WRONG_INSTANTS


def _wrong_numbers(schema: Schema) -> Iterator[Any]:
    """Return values outside the limits; some are JSON numbers too large for most parsers."""
    yield from (10**400, -(10**400), _BEYOND_FLOAT, 2**64)
    yield from (schema[end] + step for end, step in (("minimum", -1), ("maximum", 1)) if end in schema)
    if "integer" in _kinds(schema):
        yield from (5.0, 1e300)


def _kinds(schema: Schema) -> set[str]:
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
