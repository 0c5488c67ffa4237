"""Encryption of secrets at rest: AES-256-GCM under keys that the operator keeps outside the database.

A sealed value opens only for the owner and the name that it was sealed for. The first key seals, every key opens: to
rotate, put a new key in front and keep the old one until no value is sealed with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from jobs.domain.errors import SecretUnreadable

KEYS_VARIABLE = "PUNCTUAL_SECRETS_KEYS"
MIN_KEY_LENGTH = 32

_VERSION = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 4
_NONCE_BYTES = 12
_TAG_BYTES = 16
_HEAD_BYTES = len(_VERSION) + _ID_BYTES + _NONCE_BYTES
# Added to a value's length by sealing.
SEAL_OVERHEAD_BYTES = _HEAD_BYTES + _TAG_BYTES


@dataclass(frozen=True, slots=True)
class _Key:
    id: bytes  # identifies the key that sealed a value without revealing the key
    cipher: AESGCM


class Keyring:
    def __init__(self, keys: Sequence[str]) -> None:
        """Raise a ValueError that never quotes a key if the keys are unusable."""
        if not keys:
            raise ValueError("has no key; give at least one")
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise ValueError(f"has a key that is too short; each must have at least {MIN_KEY_LENGTH} random characters")
        derived = [_derive_key(key) for key in keys]
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
        return head + self._first.cipher.encrypt(nonce, value.encode(), _associated_data(head, owner_id, name))

    def open(self, sealed: bytes, *, owner_id: int, name: str) -> str:
        """Decrypt a value; raise SecretUnreadable if that fails."""
        head, body = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES:]
        if len(sealed) < SEAL_OVERHEAD_BYTES or head[:1] != _VERSION:
            raise SecretUnreadable(f"The secret {name} is damaged, or sealed by a later release; set its value again.")
        key = self._by_id.get(_key_id(sealed))
        if key is None:
            raise SecretUnreadable(
                f"The secret {name} was sealed with a key that this process does not have ({_key_id(sealed).hex()});"
                f" add it to {KEYS_VARIABLE}, or set the secret's value again."
            )
        try:
            return key.cipher.decrypt(head[-_NONCE_BYTES:], body, _associated_data(head, owner_id, name)).decode()
        except (InvalidTag, UnicodeDecodeError):
            raise SecretUnreadable(
                f"The secret {name} is damaged, or was sealed for another owner or name; set its value again."
            ) from None

    def is_sealed_with_current_key(self, sealed: bytes) -> bool:
        return sealed[: len(_VERSION)] == _VERSION and _key_id(sealed) == self._first.id


def _key_id(sealed: bytes) -> bytes:
    return sealed[len(_VERSION) : len(_VERSION) + _ID_BYTES]


def _associated_data(head: bytes, owner_id: int, name: str) -> bytes:
    """Bind a sealed value to its row: a copy in another row does not open."""
    return b"%s%d:%s" % (head, owner_id, name.encode())


def _derive_key(key: str) -> _Key:
    cipher_key = _hkdf(key, b"punctual secrets", _KEY_BYTES)
    return _Key(_hkdf(key, b"punctual secrets key id", _ID_BYTES), AESGCM(cipher_key))


def _hkdf(key: str, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(key.encode())
