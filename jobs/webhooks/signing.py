"""Signatures as the Standard Webhooks specification has them, so that known libraries verify them.

What is signed is the id, the time and the body: none of them can be changed, and an old delivery cannot be replayed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
_BYTES = 32


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def signed_headers(*, delivery_id: str, timestamp: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """With a signature for each key: while a secret is replaced, whoever knows either can verify."""
    content = b"%s.%d.%s" % (delivery_id.encode(), timestamp, body)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(key, content) for key in keys),
    }


def _signature(key: str, content: bytes) -> str:
    digest = hmac.digest(base64.b64decode(key.removeprefix(PREFIX)), content, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
