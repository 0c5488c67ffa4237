"""Validation of untrusted names, text and JSON before they are stored."""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from decimal import Decimal

MAX_PATH_LENGTH = 1024
MAX_JSON_DEPTH = 64
UNREADABLE_NAME_MESSAGE = (
    "A name needs at least one visible character and must not contain control characters, invisible characters or"
    " direction marks."
)
# Without the two joiners, which emoji and Persian and Indian scripts need.
_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_BIDI_CONTROLS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
_UNREADABLE = re.compile(f"[{_CONTROLS}{_BIDI_CONTROLS}{_INVISIBLE}]")
# Letters and symbols to Unicode, but invisible.
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def is_safe_name(name: str) -> bool:
    """Return whether this may be one part of an output's path."""
    with suppress(UnicodeEncodeError):
        return len(name.encode()) <= 255 and name.isprintable() and "\\" not in name
    return False


def is_safe_path(path: str) -> bool:
    """Return whether an output's relative path stays below its directory."""
    parts = path.split("/")
    return len(path) <= MAX_PATH_LENGTH and all(p not in {"", ".", ".."} and is_safe_name(p) for p in parts)


def is_readable_name(name: str) -> bool:
    """Return whether a name is visible in a list and cannot distort its neighbours."""
    return not _UNREADABLE.search(name) and any(
        unicodedata.category(character)[0] in "LNPS" and character not in _BLANK_LETTERS for character in name
    )


def to_storable_text(text: str, max_length: int) -> str:
    """Remove NUL and lone surrogates, which Postgres refuses, and truncate."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[:max_length]


def to_single_line(text: str, max_length: int) -> str:
    """Return untrusted text as one printable line, truncated."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:max_length])


def is_storable_json(value: object, max_bytes: int | None = None) -> bool:
    """Return whether Postgres and later readers accept the value: no NaN, lone surrogates, NUL or deep nesting."""
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return (max_bytes is None or len(encoded) <= max_bytes) and _is_shallow_and_clean(value, MAX_JSON_DEPTH)


def count_expanded_characters(value: object) -> int:
    """Count the extra characters that Postgres prints for floats: 1e308 becomes a digit and 308 zeros."""
    if isinstance(value, float):
        return max(0, len(format(Decimal(repr(value)), "f")) - len(repr(value)))
    if isinstance(value, dict):
        return sum(map(count_expanded_characters, value.values()))
    return sum(map(count_expanded_characters, value)) if isinstance(value, list) else 0


def _is_shallow_and_clean(value: object, depth: int) -> bool:
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, dict):
        return depth > 0 and all(_is_shallow_and_clean(part, depth - 1) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return depth > 0 and all(_is_shallow_and_clean(part, depth - 1) for part in value)
    return True
