"""Secrets at rest: AES-256-GCM under keys that the operator keeps outside of the database.

A sealed value opens only for the owner and under the name that it was sealed for, whole and unchanged. The first key
seals, every key opens: a new key is put in front, and the old one stays until nothing is sealed with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jobs.errors import SecretUnreadable

VARIABLE = "PUNCTUAL_SECRETS_KEYS"
MIN_KEY_LENGTH = 32

_VERSION = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 4
_NONCE_BYTES = 12
_TAG_BYTES = 16
_HEAD_BYTES = len(_VERSION) + _ID_BYTES + _NONCE_BYTES
# How much longer a value is once it is sealed.
OVERHEAD_BYTES = _HEAD_BYTES + _TAG_BYTES


@dataclass(frozen=True, slots=True)
class _Key:
    id: bytes  # tells which key sealed a value, and nothing of the key
    cipher: AESGCM


class Keyring:
    def __init__(self, keys: Sequence[str]) -> None:
        """ValueError says what is wrong with them, without repeating any."""
        if not keys:
            raise ValueError("has no key; give at least one")
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise ValueError(f"has a key that is too short; each must have at least {MIN_KEY_LENGTH} random characters")
        derived = [_derive(key) for key in keys]
        self._first = derived[0]
        self._by_id = {key.id: key for key in derived}
        if len(self._by_id) < len(derived):
            raise ValueError("has a key twice; give each once")

    @classmethod
    def parse(cls, text: str) -> Keyring:
        return cls([key for part in text.split(",") if (key := part.strip())])

    def seal(self, value: str, *, owner_id: int, name: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        head = _VERSION + self._first.id + nonce
        return head + self._first.cipher.encrypt(nonce, value.encode(), _bound(head, owner_id, name))

    def open(self, sealed: bytes, *, owner_id: int, name: str) -> str:
        """SecretUnreadable for whatever does not open."""
        head, body = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES:]
        if len(sealed) < OVERHEAD_BYTES or head[:1] != _VERSION:
            raise SecretUnreadable(f"The secret {name} is damaged, or sealed by a later release; set its value anew.")
        key = self._by_id.get(_key_id(sealed))
        if key is None:
            raise SecretUnreadable(
                f"The secret {name} was sealed with a key that this process does not have ({_key_id(sealed).hex()});"
                f" add it to {VARIABLE}, or set the secret's value anew."
            )
        try:
            return key.cipher.decrypt(head[-_NONCE_BYTES:], body, _bound(head, owner_id, name)).decode()
        except (InvalidTag, UnicodeDecodeError):
            raise SecretUnreadable(
                f"The secret {name} is damaged, or was sealed for another owner or name; set its value anew."
            ) from None

    def is_sealed_with_first(self, sealed: bytes) -> bool:
        return sealed[: len(_VERSION)] == _VERSION and _key_id(sealed) == self._first.id


def _key_id(sealed: bytes) -> bytes:
    return sealed[len(_VERSION) : len(_VERSION) + _ID_BYTES]


def _bound(head: bytes, owner_id: int, name: str) -> bytes:
    """What a sealed value is tied to: it does not open in a row that it was copied to."""
    return b"%s%d:%s" % (head, owner_id, name.encode())


def _derive(key: str) -> _Key:
    own = _stretch(key, b"punctual secrets", _KEY_BYTES)
    return _Key(_stretch(key, b"punctual secrets key id", _ID_BYTES), AESGCM(own))


def _stretch(key: str, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(key.encode())
