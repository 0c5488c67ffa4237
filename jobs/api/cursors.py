"""Cursors, sealed: a page may end at a row that is somebody else's, of which not even the id is told.

Invariant: what opens was sealed by this server, whole and unchanged. The same words give the same cursor, so that an
unchanged page has an unchanged `next`.
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


def seal(words: Sequence[object]) -> str:
    sealed = _cipher(settings.SECRET_KEY).encrypt(json.dumps(words).encode(), None)
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def open_sealed(cursor: str) -> list[object]:
    """ValueError for whatever was not sealed here."""
    try:
        sealed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        words: list[object] = json.loads(_cipher(settings.SECRET_KEY).decrypt(sealed, None))
    except InvalidTag:
        raise ValueError(cursor) from None
    return words


@lru_cache(maxsize=1)
def _cipher(key: str) -> AESSIV:
    return AESSIV(HKDF(algorithm=SHA256(), length=64, salt=None, info=b"punctual cursors").derive(key.encode()))
