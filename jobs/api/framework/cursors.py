"""Encrypted pagination cursors.

A filtered page may end at a row of another user, and not even its id may leak. Invariant: a cursor that opens was
sealed by this server and not altered. Sealing is deterministic, so an unchanged page has an unchanged `next`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


def seal_cursor(values: Sequence[object]) -> str:
    sealed = _build_cipher(settings.SECRET_KEY).encrypt(json.dumps(values).encode(), None)
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def open_cursor(cursor: str) -> list[object]:
    """Raise ValueError for a cursor that this server has not sealed."""
    try:
        sealed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        values: list[object] = json.loads(_build_cipher(settings.SECRET_KEY).decrypt(sealed, None))
    except InvalidTag:
        raise ValueError(cursor) from None
    return values


@lru_cache(maxsize=1)
def _build_cipher(key: str) -> AESSIV:
    return AESSIV(HKDF(algorithm=SHA256(), length=64, salt=None, info=b"punctual cursors").derive(key.encode()))
