"""What an entry of the audit keeps of a change: only what differs, as plain JSON that Postgres takes, and bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum

from jobs.storable import storable_text

Fields = Mapping[str, object]
HIDDEN = "(hidden)"
CHANGED = "(hidden, changed)"
MAX_TEXT = 4000
MAX_DEPTH = 8


def plain(values: Fields) -> dict[str, object]:
    return {storable_text(str(name), 200): _plain(value, MAX_DEPTH) for name, value in values.items()}


def difference(before: Fields, after: Fields) -> tuple[dict[str, object], dict[str, object]]:
    """What only one of them has, or has otherwise; parts of an object are told by their path, `requirements.cpu`."""
    old, new = dict(_flat(before)), dict(_flat(after))
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


def fitting(values: Mapping[str, object], max_bytes: int) -> dict[str, object]:
    """The largest make room until all of it fits, and say so."""
    sizes = {name: _size(name) + _size(value) for name, value in values.items()}
    kept, total = dict(values), sum(sizes.values())
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if total <= max_bytes:
            return kept
        kept[name] = f"(cut: {sizes[name]} bytes)"
        total += _size(name) + _size(kept[name]) - sizes[name]
    if total <= max_bytes:
        return kept
    return {"fields": f"(cut: {len(values)} fields)"}


def _flat(values: Fields, path: str = "") -> Iterable[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _plain(value: object, depth: int) -> object:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if depth and is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if depth and isinstance(value, Mapping):
        return {storable_text(str(name), 200): _plain(part, depth - 1) for name, part in value.items()}
    if depth and isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | memoryview):
        return [_plain(part, depth - 1) for part in value]
    return storable_text(str(value), MAX_TEXT)


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode()) + 2
