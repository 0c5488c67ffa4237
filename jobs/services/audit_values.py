"""What an entry of the audit keeps of a change: only what differs, as plain JSON that Postgres takes, and bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from jobs.storable import storable_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Fields = Mapping[str, object]
HIDDEN = "(hidden)"
CHANGED = "(hidden, changed)"
MAX_TEXT = 4000
MAX_DEPTH = 8
# What has no parts, or none that are told by themselves.
_WHOLE = frozenset({str, int, float, bool, type(None), list, tuple})


def difference(before: Fields, after: Fields) -> tuple[dict[str, object], dict[str, object]]:
    """What only one of them has, or has otherwise; parts of an object are told by their path, `requirements.cpu`."""
    old, new = _flat(before), _flat(after)
    if not old:
        return {}, new
    return (
        {name: value for name, value in old.items() if name not in new or new[name] != value},
        {name: value for name, value in new.items() if name not in old or old[name] != value},
    )


def hidden(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """Names with a word instead of their values, which may be anything; another word where the value changed."""
    return (
        dict.fromkeys(before, HIDDEN),
        {name: CHANGED if name in before and before[name] != value else HIDDEN for name, value in after.items()},
    )


def encoded(values: Fields, max_bytes: int) -> str:
    """As JSON in ASCII. What is ordinary costs little, as a thousand jobs may be made at once; the rest is made so."""
    if not values:
        return "{}"
    try:
        text = _encode(values)
    except (ValueError, TypeError, RecursionError):
        text = ""
    # NUL, and halves of characters, which may also be whole ones: Postgres refuses them.
    if text and len(text) <= max_bytes and "\\u0000" not in text and "\\ud" not in text:
        return text
    return json.dumps(_fitting(plain(values), max_bytes), ensure_ascii=False)


def plain(values: Fields) -> dict[str, object]:
    """The same, whatever it is, as JSON knows it and Postgres takes it."""
    return {storable_text(str(name), 200): _plain(value, MAX_DEPTH) for name, value in values.items()}


def _ordinary(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, date):  # a moment, too
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    return str(value)


_encode = json.JSONEncoder(default=_ordinary, allow_nan=False).encode


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _plain(value: object, depth: int) -> object:
    if isinstance(value, str):
        return storable_text(str(value), MAX_TEXT)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if not depth or isinstance(value, float):
        return storable_text(str(value), MAX_TEXT)
    if isinstance(value, Mapping):
        return {storable_text(str(name), 200): _plain(part, depth - 1) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, depth - 1) for part in value]
    return _plain(_ordinary(value), depth - 1)


def _fitting(values: Fields, max_bytes: int) -> dict[str, object]:
    """The largest make room until all of it fits, and say so."""
    sizes = {name: _size(name) + _size(value) for name, value in values.items()}
    kept, total = dict(values), sum(sizes.values())
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if total <= max_bytes:
            return kept
        kept[name] = f"(cut: {sizes[name]} bytes)"
        total += _size(name) + _size(kept[name]) - sizes[name]
    return kept if total <= max_bytes else {"fields": f"(cut: {len(values)} fields)"}


def _flat(values: Fields) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        if type(value) in _WHOLE:
            flat[name] = value
            continue
        parts = _ordinary(value) if is_dataclass(value) else value
        if isinstance(parts, Mapping) and parts:
            flat.update((f"{name}.{path}", part) for path, part in _flat(parts).items())
        else:
            flat[name] = parts
    return flat


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode()) + 2
