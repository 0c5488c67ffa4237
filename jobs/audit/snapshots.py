"""Snapshots of audit entries: the differences of a change, as bounded JSON that Postgres accepts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from jobs.domain.text_validation import to_storable_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Snapshot = Mapping[str, object]
HIDDEN = "(hidden)"
HIDDEN_CHANGED = "(hidden, changed)"
MAX_TEXT_LENGTH = 4000
MAX_DEPTH = 8
# Types that are compared as a whole.
_ATOMIC_TYPES = frozenset({str, int, float, bool, type(None), list, tuple})


def diff_snapshots(before: Snapshot, after: Snapshot) -> tuple[dict[str, object], dict[str, object]]:
    """Return the differing fields of both; nested fields are named by their path, `requirements.cpu`."""
    old, new = _flatten(before), _flatten(after)
    if not old:
        return {}, new
    return (
        {name: value for name, value in old.items() if name not in new or new[name] != value},
        {name: value for name, value in new.items() if name not in old or old[name] != value},
    )


def hide_values(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """Replace secret values by a placeholder, and changed ones by another."""
    return (
        dict.fromkeys(before, HIDDEN),
        {name: HIDDEN_CHANGED if name in before and before[name] != value else HIDDEN for name, value in after.items()},
    )


def encode_snapshot(values: Snapshot, max_bytes: int) -> str:
    """Encode as JSON of at most `max_bytes`: fast for ordinary values, since a bulk submission encodes thousands."""
    if not values:
        return "{}"
    try:
        text = _encode(values)
    except (ValueError, TypeError, RecursionError):
        text = ""
    # Postgres refuses NUL and lone surrogates; any surrogate takes the slow path, also that of a valid pair.
    if text and len(text) <= max_bytes and "\\u0000" not in text and "\\ud" not in text:
        return text
    plain = {to_storable_text(str(name), 200): _to_plain_value(value, MAX_DEPTH) for name, value in values.items()}
    return json.dumps(_truncate_to_fit(plain, max_bytes), ensure_ascii=False)


def _to_serializable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _field_names(type(value))}
    if isinstance(value, date):  # also a datetime
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    return str(value)


_encode = json.JSONEncoder(default=_to_serializable, allow_nan=False).encode


@cache
def _field_names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _to_plain_value(value: object, depth: int) -> object:
    if isinstance(value, str):
        return to_storable_text(str(value), MAX_TEXT_LENGTH)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if not depth or isinstance(value, float):
        return to_storable_text(str(value), MAX_TEXT_LENGTH)
    if isinstance(value, Mapping):
        return {to_storable_text(str(name), 200): _to_plain_value(part, depth - 1) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain_value(part, depth - 1) for part in value]
    return _to_plain_value(_to_serializable(value), depth - 1)


def _truncate_to_fit(values: Snapshot, max_bytes: int) -> dict[str, object]:
    """Replace the largest values by a note about their size until the rest fits."""
    sizes = {name: _measure_size(name) + _measure_size(value) for name, value in values.items()}
    kept, total = dict(values), sum(sizes.values())
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if total <= max_bytes:
            return kept
        kept[name] = f"(cut: {sizes[name]} bytes)"
        total += _measure_size(name) + _measure_size(kept[name]) - sizes[name]
    return kept if total <= max_bytes else {"fields": f"(cut: {len(values)} fields)"}


def _flatten(values: Snapshot) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        if type(value) in _ATOMIC_TYPES:
            flat[name] = value
            continue
        parts = _to_serializable(value) if is_dataclass(value) else value
        if isinstance(parts, Mapping) and parts:
            flat.update((f"{name}.{path}", part) for path, part in _flatten(parts).items())
        else:
            flat[name] = parts
    return flat


def _measure_size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode()) + 2
