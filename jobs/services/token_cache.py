"""Tokens that were found a moment ago, for requests that only read: those who poll would cost a lookup each time.

Invariant: a token that was revoked or has expired, or whose owner may not log in any more, reads for at most a second
longer, and changes nothing: whatever changes something has it looked up. Only what was found is remembered, and only
by its digest, in this process.
"""

from __future__ import annotations

import threading
import time

from django.db import connection

from jobs.models import ApiToken
from jobs.services.tokens import digest_of, find_token

SECONDS = 1.0
MOST = 4096

_found: dict[str, tuple[float, ApiToken]] = {}
_lookups = [threading.Lock() for _ in range(16)]


def find_recent_token(secret: str) -> ApiToken:
    """As `find_token`, or what that has found within the last second."""
    if connection.in_atomic_block:
        return find_token(secret)
    digest = digest_of(secret)
    if (known := _recent(digest)) is not None:
        return known
    # The others who come with it at the same moment wait for the one who looks it up, but not for a stuck database.
    lookup = _lookups[int(digest[:8], 16) % len(_lookups)]
    ours = lookup.acquire(timeout=SECONDS)
    try:
        return _recent(digest) or _find(secret, digest)
    finally:
        if ours:
            lookup.release()


def _find(secret: str, digest: str) -> ApiToken:
    began = time.monotonic()
    token = find_token(secret)
    if len(_found) >= MOST:
        _found.clear()
    _found[digest] = (began, token)
    return token


def _recent(digest: str) -> ApiToken | None:
    began, token = _found.get(digest, (0.0, None))
    return token if time.monotonic() - began < SECONDS else None
