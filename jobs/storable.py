"""What may be stored of what strangers wrote: names, text and JSON that Postgres takes and readers can read."""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from decimal import Decimal

MAX_PATH_LENGTH = 1024
MAX_JSON_DEPTH = 64
UNREADABLE_NAME = (
    "A name has something to see in it, and neither control characters nor others that are invisible or turn the"
    " direction of text."
)
# Without the two joiners, which emoji, Persian and Indian scripts are written with.
_CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_TURNING = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"
_UNREADABLE = re.compile(f"[{_CONTROLS}{_TURNING}{_INVISIBLE}]")
# Letters and signs to Unicode, and nothing to the eye.
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def is_safe_name(name: str) -> bool:
    """One part of an output's path."""
    with suppress(UnicodeEncodeError):
        return len(name.encode()) <= 255 and name.isprintable() and "\\" not in name
    return False


def is_safe_path(path: str) -> bool:
    """The path of an output below its directory, which it cannot leave."""
    parts = path.split("/")
    return len(path) <= MAX_PATH_LENGTH and all(p not in {"", ".", ".."} and is_safe_name(p) for p in parts)


def is_readable_name(name: str) -> bool:
    """What people call a thing must be seen where it is listed, and must not change what is listed beside it."""
    return not _UNREADABLE.search(name) and any(
        unicodedata.category(character)[0] in "LNPS" and character not in _BLANKS for character in name
    )


def storable_text(text: str, max_length: int) -> str:
    """Postgres refuses NUL and lone surrogates, which an error about a stranger's file may well contain."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[:max_length]


def plain_line(text: str, max_length: int) -> str:
    """Text of a stranger as one line that steers neither a terminal nor the direction of what stands around it."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text[:max_length])


def is_storable_json(value: object, max_bytes: int | None = None) -> bool:
    """False for what Postgres or a later reader would refuse: NaN, lone surrogates, NUL, endless nesting."""
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return (max_bytes is None or len(encoded) <= max_bytes) and _is_shallow_and_clean(value, MAX_JSON_DEPTH)


def printed_excess(value: object) -> int:
    """How many more characters Postgres prints than were written: 1e308 comes back as a digit and 308 zeros."""
    if isinstance(value, float):
        return max(0, len(format(Decimal(repr(value)), "f")) - len(repr(value)))
    if isinstance(value, dict):
        return sum(map(printed_excess, value.values()))
    return sum(map(printed_excess, value)) if isinstance(value, list) else 0


def _is_shallow_and_clean(value: object, depth: int) -> bool:
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, dict):
        return depth > 0 and all(_is_shallow_and_clean(part, depth - 1) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return depth > 0 and all(_is_shallow_and_clean(part, depth - 1) for part in value)
    return True
