"""Retry policy: whether and when a failed execution runs again.

Invariant: an execution is tried at most `max_attempts` times, and no delay exceeds `max_backoff_seconds`.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta

from jobs.domain.errors import InvalidInput

MAX_ATTEMPTS = 100
MAX_BACKOFF_SECONDS = 86_400
MAX_BACKOFF_FACTOR = 10
MAX_EXIT_CODE = 255
# Shells report a death by signal as 128 + signal: 137 is SIGKILL.
SIGNAL_EXIT_CODE_BASE = 128
EXIT_REASON = "exit"
# Failures that the policy covers; lost and released attempts are retried whatever the policy.
RETRY_REASONS = (
    EXIT_REASON,
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
    jitter: float = 0  # largest share of each delay that may be cut off, from 0 to 1
    on_exit_codes: tuple[int, ...] | None = None  # None: any exit code
    not_on_exit_codes: tuple[int, ...] | None = None
    on_reasons: tuple[str, ...] | None = None  # None: any reason


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed, as far as policies distinguish."""

    reason: str
    exit_code: int | None = None
    signal: int | None = None

    @property
    def code(self) -> int | None:
        if self.exit_code is None and self.signal is not None:
            return SIGNAL_EXIT_CODE_BASE + self.signal
        return self.exit_code


DEFAULT_RETRY_POLICY = RetryPolicy()
_KEYS = tuple(field.name for field in fields(RetryPolicy))


def dump_retry_policy(policy: RetryPolicy) -> dict[str, object]:
    """Return the values from which `parse_retry_policy` builds this policy."""
    return {key: getattr(policy, key) for key in _KEYS}


def parse_retry_policy(values: Mapping[str, object]) -> RetryPolicy:
    """Build a policy from untrusted values; missing keys take their defaults. InvalidInput names the key."""
    for key in values:
        if key not in _KEYS:
            raise InvalidInput(f"retry.{str(key)[:64]}", f"The retry policy has no such key; use {', '.join(_KEYS)}.")

    default = DEFAULT_RETRY_POLICY
    max_attempts = values.get("max_attempts", default.max_attempts)
    if not isinstance(max_attempts, int) or isinstance(max_attempts, bool) or not 1 <= max_attempts <= MAX_ATTEMPTS:
        raise InvalidInput("retry.max_attempts", f"max_attempts must be a whole number from 1 to {MAX_ATTEMPTS}.")
    backoff_seconds = _parse_number(values, "backoff_seconds", default.backoff_seconds, 0, MAX_BACKOFF_SECONDS)
    backoff_factor = _parse_number(values, "backoff_factor", default.backoff_factor, 1, MAX_BACKOFF_FACTOR)
    # A first delay above the default cap is meant as written, so it raises the cap; an explicit cap must fit.
    cap = max(default.max_backoff_seconds, backoff_seconds)
    max_backoff_seconds = _parse_number(values, "max_backoff_seconds", cap, 0, MAX_BACKOFF_SECONDS)
    if max_backoff_seconds < backoff_seconds:
        raise InvalidInput("retry.max_backoff_seconds", "max_backoff_seconds must be at least backoff_seconds.")
    jitter = _parse_number(values, "jitter", default.jitter, 0, 1)
    exit_codes = {key: _parse_exit_codes(values, key) for key in ("on_exit_codes", "not_on_exit_codes")}
    if None not in exit_codes.values():
        raise InvalidInput(
            "retry.not_on_exit_codes", "Give either on_exit_codes or not_on_exit_codes; set the other to null."
        )
    reasons = _parse_reasons(values)
    return RetryPolicy(
        max_attempts, backoff_seconds, backoff_factor, max_backoff_seconds, jitter, **exit_codes, on_reasons=reasons
    )


def compute_backoff(policy: RetryPolicy, tries_used: int, seed: bytes = b"") -> timedelta:
    """Return the delay: backoff_seconds after the first try, times backoff_factor after each further one.

    Jitter only shortens it, so the cap holds; it is deterministic for a seed and a try.
    """
    if policy.backoff_seconds <= 0:
        return timedelta(0)
    try:
        seconds = policy.backoff_seconds * float(policy.backoff_factor) ** max(tries_used - 1, 0)
    except OverflowError:
        seconds = math.inf
    capped = min(seconds, policy.max_backoff_seconds)
    if policy.jitter:
        capped *= 1 - policy.jitter * _jitter_share(seed, tries_used)
    return timedelta(seconds=capped)


def covers_failure(policy: RetryPolicy, failure: Failure) -> bool:
    """Return whether the policy retries this kind of failure, regardless of the tries left."""
    if policy.on_reasons is not None and failure.reason not in policy.on_reasons:
        return False
    if failure.reason != EXIT_REASON:
        return True
    if policy.on_exit_codes is not None:
        return failure.code in policy.on_exit_codes
    return policy.not_on_exit_codes is None or failure.code not in policy.not_on_exit_codes


def decide_retry(
    policy: RetryPolicy, *, tries_used: int, failure: Failure | None = None, seed: bytes = b""
) -> timedelta | None:
    """Return the delay before the next try; None if the tries are used up or the policy does not cover the failure."""
    if tries_used >= policy.max_attempts or (failure is not None and not covers_failure(policy, failure)):
        return None
    return compute_backoff(policy, tries_used, seed)


def _jitter_share(seed: bytes, tries_used: int) -> float:
    """Return a number uniform in [0, 1), different for each execution and try."""
    digest = hashlib.blake2b(seed + b":" + str(tries_used).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _parse_number(values: Mapping[str, object], key: str, default: float, low: int, high: int) -> float:
    value = values.get(key, default)
    # NaN fails every comparison and so is refused.
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"retry.{key}", f"{key} must be a number from {low} to {high}.")
    return float(value)


def _parse_exit_codes(values: Mapping[str, object], key: str) -> tuple[int, ...] | None:
    codes = values.get(key)
    if codes is None:
        return None
    if not isinstance(codes, list | tuple) or not codes:
        raise InvalidInput(f"retry.{key}", f"{key} must be a list of exit codes, or null for no such rule.")
    for code in codes:
        if not isinstance(code, int) or isinstance(code, bool) or not 1 <= code <= MAX_EXIT_CODE:
            raise InvalidInput(f"retry.{key}", f"An exit code in {key} is a whole number from 1 to {MAX_EXIT_CODE}.")
    return tuple(sorted(set(codes)))


def _parse_reasons(values: Mapping[str, object]) -> tuple[str, ...] | None:
    reasons = values.get("on_reasons")
    if reasons is None:
        return None
    if not isinstance(reasons, list | tuple) or not reasons or any(reason not in RETRY_REASONS for reason in reasons):
        known = ", ".join(RETRY_REASONS)
        raise InvalidInput("retry.on_reasons", f"on_reasons must be a list of {known}, or null for any reason.")
    return tuple(reason for reason in RETRY_REASONS if reason in reasons)
