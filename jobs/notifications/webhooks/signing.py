"""Signatures of the Standard Webhooks specification, which existing libraries verify.

They cover id, timestamp and body: none can be changed, and an old delivery cannot be replayed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"
_SECRET_BYTES = 32


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def sign_headers(*, delivery_id: str, timestamp: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """Sign with every key: while a secret is being rotated, receivers may verify with either."""
    content = b"%s.%d.%s" % (delivery_id.encode(), timestamp, body)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_sign(key, content) for key in keys),
    }


def _sign(key: str, content: bytes) -> str:
    digest = hmac.digest(base64.b64decode(key.removeprefix(PREFIX)), content, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
