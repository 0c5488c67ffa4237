"""Whether and when a failed execution is tried again.

Invariant: an execution is tried at most `max_attempts` times, and no delay exceeds `max_backoff_seconds`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from jobs.errors import InvalidInput

MAX_ATTEMPTS = 100
MAX_BACKOFF_SECONDS = 86_400
MAX_BACKOFF_FACTOR = 10


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with a cap; build one from untrusted values with `parse_retry_policy`."""

    max_attempts: int = 1
    backoff_seconds: float = 5
    backoff_factor: float = 2
    max_backoff_seconds: float = 3600


DEFAULT_RETRY_POLICY = RetryPolicy()
_KEYS = tuple(field.name for field in fields(RetryPolicy))


def parse_retry_policy(values: Mapping[str, object]) -> RetryPolicy:
    """Turn untrusted values into a policy; what is left out takes its default. InvalidInput names the key."""
    for key in values:
        if key not in _KEYS:
            raise InvalidInput(f"retry.{str(key)[:64]}", f"The retry policy has no such key; use {', '.join(_KEYS)}.")

    default = DEFAULT_RETRY_POLICY
    max_attempts = values.get("max_attempts", default.max_attempts)
    if not isinstance(max_attempts, int) or isinstance(max_attempts, bool) or not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InvalidInput("retry.max_attempts", f"max_attempts must be a whole number from 1 to {MAX_ATTEMPTS}.")
    backoff_seconds = _number(values, "backoff_seconds", default.backoff_seconds, 0, MAX_BACKOFF_SECONDS)
    backoff_factor = _number(values, "backoff_factor", default.backoff_factor, 1, MAX_BACKOFF_FACTOR)
    # A first delay above the default cap is meant as written, so it raises the cap; an explicit cap must fit.
    cap = max(default.max_backoff_seconds, backoff_seconds)
    max_backoff_seconds = _number(values, "max_backoff_seconds", cap, 0, MAX_BACKOFF_SECONDS)
    if max_backoff_seconds < backoff_seconds:
        raise InvalidInput("retry.max_backoff_seconds", "max_backoff_seconds must be at least backoff_seconds.")
    return RetryPolicy(max_attempts, backoff_seconds, backoff_factor, max_backoff_seconds)


def backoff(policy: RetryPolicy, tries_used: int) -> timedelta:
    """How long to wait: backoff_seconds after the first try, times backoff_factor after each further one."""
    if policy.backoff_seconds <= 0:
        return timedelta(0)
    try:
        seconds = policy.backoff_seconds * float(policy.backoff_factor) ** max(tries_used - 1, 0)
    except OverflowError:
        seconds = math.inf
    return timedelta(seconds=min(seconds, policy.max_backoff_seconds))


def decide(policy: RetryPolicy, *, tries_used: int) -> timedelta | None:
    """How long to wait before the next try, or None when the tries are used up."""
    return None if tries_used >= policy.max_attempts else backoff(policy, tries_used)


def _number(values: Mapping[str, object], key: str, default: float, low: int, high: int) -> float:
    value = values.get(key, default)
    # NaN is refused by the comparison, which it always fails.
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"retry.{key}", f"{key} must be a number from {low} to {high}.")
    return float(value)
