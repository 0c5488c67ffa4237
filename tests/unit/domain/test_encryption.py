"""Sealed secrets open only for their owner and name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.encryption import SEAL_OVERHEAD_BYTES, Keyring
from jobs.domain.errors import SecretUnreadable

OLD, NEW = "o" * 32, "n" * 32
RING = Keyring([NEW])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True)
owners = st.integers(0, 2**63)


def refusal(ring: Keyring, sealed: bytes, *, owner_id: int = 1, name: str = "db") -> str:
    with pytest.raises(SecretUnreadable) as caught:
        ring.open(sealed, owner_id=owner_id, name=name)
    return str(caught.value)


@given(value=texts, owner_id=owners, name=names)
def test_sealed_value_opens_and_reveals_nothing(value: str, owner_id: int, name: str) -> None:
    sealed = RING.seal(value, owner_id=owner_id, name=name)
    assert RING.open(sealed, owner_id=owner_id, name=name) == value
    assert len(sealed) == len(value.encode()) + SEAL_OVERHEAD_BYTES
    assert len(value) < 4 or value.encode() not in sealed
    assert sealed != RING.seal(value, owner_id=owner_id, name=name), "sealing a value twice gives different bytes"


@given(value=texts, data=st.data())
def test_any_changed_bit_is_refused(value: str, data: st.DataObject) -> None:
    sealed = bytearray(RING.seal(value, owner_id=1, name="db"))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refusal(RING, bytes(sealed))


def test_truncated_value_is_refused() -> None:
    sealed = RING.seal("hunter2", owner_id=1, name="db")
    for length in range(len(sealed)):
        assert "db" in refusal(RING, sealed[:length])


@given(sealed=st.binary(max_size=100))
def test_arbitrary_bytes_are_refused(sealed: bytes) -> None:
    assert "db" in refusal(RING, sealed)
    assert "db" in refusal(RING, b"\x01" + sealed)


@given(owner_id=owners, other=owners, name=names, called=names)
def test_copied_row_does_not_open(owner_id: int, other: int, name: str, called: str) -> None:
    sealed = RING.seal("hunter2", owner_id=owner_id, name=name)
    if (other, called) != (owner_id, name):
        message = refusal(RING, sealed, owner_id=other, name=called)
        assert "another owner or name" in message
        assert "hunter2" not in message


def test_owner_and_name_are_bound_unambiguously() -> None:
    refusal(RING, RING.seal("hunter2", owner_id=1, name="1x"), owner_id=11, name="x")


def test_every_key_opens_and_the_first_one_seals() -> None:
    old = Keyring([OLD]).seal("hunter2", owner_id=1, name="db")
    both = Keyring.parse(f" {NEW} , {OLD},")
    assert both.open(old, owner_id=1, name="db") == "hunter2"
    assert not both.is_sealed_with_current_key(old)
    new = both.seal("hunter2", owner_id=1, name="db")
    assert both.is_sealed_with_current_key(new)
    assert RING.open(new, owner_id=1, name="db") == "hunter2"


def test_missing_key_is_named_without_key_or_value() -> None:
    message = refusal(RING, Keyring([OLD]).seal("hunter2", owner_id=1, name="db"))
    assert re.search(r"The secret db .* does not have \([0-9a-f]{8}\); add it to PUNCTUAL_SECRETS_KEYS", message)
    assert "hunter2" not in message
    assert OLD not in message


@pytest.mark.parametrize("text", ["", " , ", "k" * 31, f"{NEW},short", f"{NEW},{NEW}"])
def test_bad_keys_are_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        Keyring.parse(text)
    assert NEW not in str(caught.value)
    assert "short;" not in str(caught.value).replace("too short;", "")
