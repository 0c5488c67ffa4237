"""Tokens that were found a moment ago, for requests that only read: those who poll would cost a lookup each time.

Invariant: a token that was revoked or has expired, or whose owner may not log in any more, reads for at most a second
longer, and changes nothing: whatever changes something has it looked up. Only what was found is remembered, and only
by its digest, in this process.
"""

from __future__ import annotations

from functools import partial

from django.db import connection

from jobs.models import ApiToken
from jobs.services.recent import Recent
from jobs.services.tokens import digest_of, find_token

SECONDS = 1.0

_found: Recent[str, ApiToken] = Recent()


def find_recent_token(secret: str) -> ApiToken:
    """As `find_token`, or what that has found within the last second."""
    if connection.in_atomic_block:
        return find_token(secret)
    return _found.get(digest_of(secret), partial(find_token, secret), seconds=SECONDS)
