"""The hashed field `H` of cron expressions: a value that differs between schedules and is fixed for each.

Invariant: the plain expression depends only on the text and the key. Each field uses its own part of the hash, so that
schedules with equal minutes do not share their hours.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from jobs.domain.errors import InvalidInput

# minute, hour, day of month, month, weekday; every month has the first 28 days.
_RANGES = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
_LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES = ("minute", "hour", "day-of-month", "month", "weekday")
_TERM = re.compile(r"[Hh](?:\(([0-9]{1,2})-([0-9]{1,2})\))?(?:/([0-9]{1,2}))?")


@dataclass(frozen=True, slots=True)
class _HashedTerm:
    """A term that resolves to one of the `size` values from `low` on, followed by `rest`."""

    low: int
    size: int
    rest: str

    def value(self, part: int) -> str:
        return f"{self.low + (part * self.size >> 64)}{self.rest}"


def is_hashed(expression: str) -> bool:
    """Return whether the expression has an `H` term; THU does not count."""
    if "H" not in expression and "h" not in expression:
        return False
    return any(_TERM.fullmatch(term) for field in expression.split() for term in field.split(","))


def resolve_hashed(expression: str, key: UUID) -> str:
    """Return the plain cron expression with the key's value for every `H`."""
    if "H" not in expression and "h" not in expression:
        return expression
    fields = _parse_fields(expression)
    if fields is None:
        return expression
    digest = hashlib.blake2b(key.bytes, digest_size=40, person=b"cron field").digest()
    resolved = []
    for position, terms in enumerate(fields):
        part = int.from_bytes(digest[8 * position : 8 * position + 8], "big")
        resolved.append(",".join([term if isinstance(term, str) else term.value(part) for term in terms]))
    return " ".join(resolved)


@lru_cache(maxsize=4096)
def _parse_fields(expression: str) -> tuple[tuple[str | _HashedTerm, ...], ...] | None:
    """Return the terms of the five fields; None for a plain expression."""
    if not is_hashed(expression):
        return None
    fields = expression.split()
    if len(fields) != len(_RANGES):
        raise InvalidInput("expression", "A cron expression with H has five fields: minute hour day month weekday.")
    return tuple(
        tuple(_parse_term(text, position) for text in field.split(",")) for position, field in enumerate(fields)
    )


def _parse_term(text: str, position: int) -> str | _HashedTerm:
    parts = _TERM.fullmatch(text)
    if parts is None:
        return text
    first, last, step = parts.groups()
    low, high = (int(first), int(last)) if first else _RANGES[position]
    lowest, highest = _LIMITS[position]
    if not lowest <= low <= high <= highest:
        raise InvalidInput(
            "expression", f"The range of {text} must lie within {lowest}-{highest} in the {_NAMES[position]} field."
        )
    if step is None:
        return _HashedTerm(low, high - low + 1, "")
    if not 1 <= int(step) <= high - low + 1:
        raise InvalidInput(
            "expression", f"The step of {text} must be between 1 and {high - low + 1}, the length of its range."
        )
    return _HashedTerm(low, int(step), f"-{high}/{step}")
