"""Sealed secrets: open for whom and what they were sealed for, and for nobody and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import SecretUnreadable
from jobs.sealing import OVERHEAD_BYTES, Keyring

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
def test_what_was_sealed_opens_and_shows_nothing(value: str, owner_id: int, name: str) -> None:
    sealed = RING.seal(value, owner_id=owner_id, name=name)
    assert RING.open(sealed, owner_id=owner_id, name=name) == value
    assert len(sealed) == len(value.encode()) + OVERHEAD_BYTES
    assert len(value) < 4 or value.encode() not in sealed
    assert sealed != RING.seal(value, owner_id=owner_id, name=name), "the same value twice does not look the same"


@given(value=texts, data=st.data())
def test_one_changed_bit_anywhere_and_it_does_not_open(value: str, data: st.DataObject) -> None:
    sealed = bytearray(RING.seal(value, owner_id=1, name="db"))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    refusal(RING, bytes(sealed))


def test_what_was_cut_off_is_refused_in_words() -> None:
    sealed = RING.seal("hunter2", owner_id=1, name="db")
    for length in range(len(sealed)):
        assert "db" in refusal(RING, sealed[:length])


@given(sealed=st.binary(max_size=100))
def test_whatever_bytes_there_are_they_are_refused_in_words(sealed: bytes) -> None:
    assert "db" in refusal(RING, sealed)
    assert "db" in refusal(RING, b"\x01" + sealed)


@given(owner_id=owners, other=owners, name=names, called=names)
def test_a_row_that_was_copied_does_not_open(owner_id: int, other: int, name: str, called: str) -> None:
    sealed = RING.seal("hunter2", owner_id=owner_id, name=name)
    if (other, called) != (owner_id, name):
        said = refusal(RING, sealed, owner_id=other, name=called)
        assert "another owner or name" in said
        assert "hunter2" not in said


def test_a_number_and_a_name_cannot_be_taken_for_others() -> None:
    refusal(RING, RING.seal("hunter2", owner_id=1, name="1x"), owner_id=11, name="x")


def test_any_key_opens_and_the_first_one_seals() -> None:
    old = Keyring([OLD]).seal("hunter2", owner_id=1, name="db")
    both = Keyring.parse(f" {NEW} , {OLD},")
    assert both.open(old, owner_id=1, name="db") == "hunter2"
    assert not both.is_sealed_with_first(old)
    new = both.seal("hunter2", owner_id=1, name="db")
    assert both.is_sealed_with_first(new)
    assert RING.open(new, owner_id=1, name="db") == "hunter2"


def test_a_missing_key_is_named_without_the_key_or_the_value() -> None:
    said = refusal(RING, Keyring([OLD]).seal("hunter2", owner_id=1, name="db"))
    assert re.search(r"The secret db .* does not have \([0-9a-f]{8}\); add it to PUNCTUAL_SECRETS_KEYS", said)
    assert "hunter2" not in said
    assert OLD not in said


@pytest.mark.parametrize("text", ["", " , ", "k" * 31, f"{NEW},short", f"{NEW},{NEW}"])
def test_bad_keys_are_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        Keyring.parse(text)
    assert NEW not in str(caught.value)
    assert "short;" not in str(caught.value).replace("too short;", "")
