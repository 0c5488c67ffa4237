"""Whether and when a failed execution is tried again.

Invariant: an execution is tried at most `max_attempts` times, and no delay exceeds `max_backoff_seconds`.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from jobs.errors import InvalidInput

MAX_ATTEMPTS = 100
MAX_BACKOFF_SECONDS = 86_400
MAX_BACKOFF_FACTOR = 10
MAX_EXIT_CODE = 255
# What shells call the end by a signal: 137 is SIGKILL.
BY_SIGNAL = 128
EXITED = "exit"
# The ways in which an attempt fails by itself; what was lost or released is tried again whatever the policy says.
RETRY_REASONS = (
    EXITED,
    "timeout",
    "out_of_memory",
    "sandbox_error",
    "artifact_mismatch",
    "artifact_unavailable",
    "secret_unavailable",
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter and a cap; build one from untrusted values with `parse_retry_policy`."""

    max_attempts: int = 1
    backoff_seconds: float = 5
    backoff_factor: float = 2
    max_backoff_seconds: float = 3600
    jitter: float = 0  # the share of each delay that may be cut off: 0 none of it, 1 all of it
    on_exit_codes: tuple[int, ...] | None = None  # None: whatever the exit code
    not_on_exit_codes: tuple[int, ...] | None = None
    on_reasons: tuple[str, ...] | None = None  # None: whatever the reason


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed, as far as a policy asks."""

    reason: str
    exit_code: int | None = None
    signal: int | None = None

    @property
    def code(self) -> int | None:
        if self.exit_code is None and self.signal is not None:
            return BY_SIGNAL + self.signal
        return self.exit_code


DEFAULT_RETRY_POLICY = RetryPolicy()
_KEYS = tuple(field.name for field in fields(RetryPolicy))


def policy_values(policy: RetryPolicy) -> dict[str, object]:
    """What `parse_retry_policy` makes the policy of."""
    return {key: getattr(policy, key) for key in _KEYS}


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
    jitter = _number(values, "jitter", default.jitter, 0, 1)
    on_exit_codes, not_on_exit_codes = _exit_codes(values, "on_exit_codes"), _exit_codes(values, "not_on_exit_codes")
    if on_exit_codes is not None and not_on_exit_codes is not None:
        raise InvalidInput(
            "retry.not_on_exit_codes", "Give either on_exit_codes or not_on_exit_codes; set the other to null."
        )
    return RetryPolicy(
        max_attempts,
        backoff_seconds,
        backoff_factor,
        max_backoff_seconds,
        jitter,
        on_exit_codes,
        not_on_exit_codes,
        _reasons(values),
    )


def backoff(policy: RetryPolicy, tries_used: int, seed: bytes = b"") -> timedelta:
    """How long to wait: backoff_seconds after the first try, times backoff_factor after each further one.

    Jitter only ever shortens it, so that the cap holds; for one seed and try it is always the same.
    """
    if policy.backoff_seconds <= 0:
        return timedelta(0)
    try:
        seconds = policy.backoff_seconds * float(policy.backoff_factor) ** max(tries_used - 1, 0)
    except OverflowError:
        seconds = math.inf
    capped = min(seconds, policy.max_backoff_seconds)
    if policy.jitter:
        capped *= 1 - policy.jitter * _chance(seed, tries_used)
    return timedelta(seconds=capped)


def covers(policy: RetryPolicy, failure: Failure) -> bool:
    """Whether the policy is about such a failure at all, however many tries are left."""
    if policy.on_reasons is not None and failure.reason not in policy.on_reasons:
        return False
    if failure.reason != EXITED:
        return True
    if policy.on_exit_codes is not None:
        return failure.code in policy.on_exit_codes
    return policy.not_on_exit_codes is None or failure.code not in policy.not_on_exit_codes


def decide(
    policy: RetryPolicy, *, tries_used: int, failure: Failure | None = None, seed: bytes = b""
) -> timedelta | None:
    """How long to wait before the next try, or None when there is none: the tries are used up, or it is not covered."""
    if tries_used >= policy.max_attempts or (failure is not None and not covers(policy, failure)):
        return None
    return backoff(policy, tries_used, seed)


def _chance(seed: bytes, tries_used: int) -> float:
    """Evenly spread in [0, 1), and different for each execution and try."""
    digest = hashlib.blake2b(seed + b":" + str(tries_used).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _number(values: Mapping[str, object], key: str, default: float, low: int, high: int) -> float:
    value = values.get(key, default)
    # NaN is refused by the comparison, which it always fails.
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"retry.{key}", f"{key} must be a number from {low} to {high}.")
    return float(value)


def _exit_codes(values: Mapping[str, object], key: str) -> tuple[int, ...] | None:
    given = values.get(key)
    if given is None:
        return None
    if not isinstance(given, list | tuple) or not given:
        raise InvalidInput(f"retry.{key}", f"{key} must be a list of exit codes, or null for no such rule.")
    for code in given:
        if not isinstance(code, int) or isinstance(code, bool) or not 1 <= code <= MAX_EXIT_CODE:
            raise InvalidInput(f"retry.{key}", f"An exit code in {key} is a whole number from 1 to {MAX_EXIT_CODE}.")
    return tuple(sorted(set(given)))


def _reasons(values: Mapping[str, object]) -> tuple[str, ...] | None:
    given = values.get("on_reasons")
    if given is None:
        return None
    if not isinstance(given, list | tuple) or not given or any(reason not in RETRY_REASONS for reason in given):
        known = ", ".join(RETRY_REASONS)
        raise InvalidInput("retry.on_reasons", f"on_reasons must be a list of {known}, or null for any reason.")
    return tuple(reason for reason in RETRY_REASONS if reason in given)
