"""Masking: no secret passes, however the output is split, and nothing else changes or is held back for long."""

from __future__ import annotations

import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.run.masking import BLOCK_BYTES, MASK, Masker, encoded_forms, make_masker

fast = settings(deadline=None, database=None, max_examples=200)
# Few letters, so that secrets occur, overlap and contain each other.
VALUES = st.lists(st.text("ab\n", min_size=4, max_size=12), min_size=1, max_size=4)
PIECES = st.lists(st.binary(max_size=8) | st.text("ab\n", max_size=24).map(str.encode), max_size=12)


def masked(masker: Masker, *pieces: bytes) -> bytes:
    return b"".join([*(masker.feed("stdout", piece) for piece in pieces), masker.flush("stdout")])


def masked_slowly(forms: set[bytes], data: bytes) -> bytes:
    """Reference implementation: one mask for all adjacent occurrences."""
    hidden = [False] * len(data)
    for start in range(len(data)):
        for form in forms:
            if data.startswith(form, start):
                hidden[start : start + len(form)] = [True] * len(form)
    out = b""
    for index, byte in enumerate(data):
        if not hidden[index]:
            out += bytes([byte])
        elif index == 0 or not hidden[index - 1]:
            out += MASK
    return out


@fast
@given(VALUES, PIECES)
def test_masked_output_does_not_depend_on_splits(values: list[str], pieces: list[bytes]) -> None:
    forms = {form for value in values for form in encoded_forms(value)}
    whole = b"".join(pieces)
    expected = masked_slowly(forms, whole)
    assert masked(Masker(values), whole) == expected
    assert masked(Masker(values), *pieces) == expected
    assert masked(Masker(values), *(whole[index : index + 1] for index in range(len(whole)))) == expected


@fast
@given(VALUES, PIECES)
def test_secrets_are_masked_and_nothing_else_changes(values: list[str], pieces: list[bytes]) -> None:
    whole = b"".join(pieces).replace(b"*", b"")  # a mask could complete this secret
    out = masked(Masker(values), whole)
    assert not [value for value in values if value.encode() in out]
    if not any(form in whole for value in values for form in encoded_forms(value)):
        assert out == whole


@fast
@given(st.text(min_size=4), st.binary(max_size=5), st.binary(max_size=5))
def test_arbitrary_text_is_masked(value: str, before: bytes, after: bytes) -> None:
    value = value.encode("utf-8", "ignore").decode() + "abcd"
    out = masked(Masker([value]), before + value.encode() + after)
    assert MASK in out
    assert value.encode() not in out or b"*" in value.encode()


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        (["hunter22"], "x hunter22 y", "x *** y"),
        (["hunter22"], "hunter22hunter22", "***"),
        (["hunter22", "hunter"], "hunter22 hunter hunter2", "*** *** ***2"),
        (["abcdef", "defghi"], "-abcdefghi-", "-***-"),
        (["abcd"], "abc abcd abcde", "abc *** ***e"),
        (["aaaa"], "aaa aaaaaaa", "aaa ***"),
        (["first line\nsecond line\n"], "second line, first line\nfirst lin", "***, ***\nfirst lin"),
        (["short\nlonger line"], "short longer line", "short ***"),
        (["word\n"], "a word.", "a ***."),
        (["größer"], "ist größer als", "ist *** als"),
    ],
)
def test_masking_examples(values: list[str], text: str, expected: str) -> None:
    assert masked(Masker(values), text.encode()).decode() == expected
    assert Masker(values).mask(text) == expected


@pytest.mark.parametrize("value", ['pa ss/wö"rd+1', "simple-secret", "two lines\nand a \\ tab\t", "?>?>?>?>?>?>~~~"])
def test_encoded_secrets_are_masked(value: str) -> None:
    data = value.encode()
    variants = [
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        b64encode(data).decode(),
        urlsafe_b64encode(data).decode(),
    ]
    for variant in variants:
        assert Masker([value]).mask(f"<{variant}>") == "<***>", variant


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("wJalrXUtn/K7MDENG", r"wJalrXUtn\/K7MDENG"),
        ("über/größe", r"\u00fcber\/gr\u00f6\u00dfe"),
        ("größe-ist-geheim", r"gr\u00F6\u00DFe-ist-geheim"),
        ("ab<cd>&ef='", r"ab\u003ccd\u003e\u0026ef='"),
        ("ab<cd>&ef='", r"ab\u003Ccd\u003E\u0026ef=\u0027"),
        ("ab<cd>&ef='", r"ab\u003ccd\u003e\u0026ef\u003d\u0027"),
        ("</secret>", r"\u003c\/secret\u003e"),
        ("p@ssw(0)rd!*'~", "p%40ssw(0)rd!*'~"),
        ("a/b+c=d@e", "a%2fb%2bc%3dd%40e"),
        ("a/b+c=d@e", "a/b%2bc%3dd%40e"),
        ("a b+c=d@e", "a+b%2bc%3dd%40e"),
        ("a\nb\nc\nd", "a\r\nb\r\nc\r\nd"),
        ("a\r\nb\r\nc\r\nd", "a\nb\nc\nd"),
        ("a\nb\nc\nd", r"a\r\nb\r\nc\r\nd"),
        ("a\nb\nc\nd", b64encode(b"a\r\nb\r\nc\r\nd").decode()),
        ('first\nthe "second" line', r"the \"second\" line"),
        ("first\nthe/second/line", r"the\/second\/line"),
    ],
)
def test_encodings_of_other_languages_are_masked(value: str, written: str) -> None:
    assert Masker([value]).mask(f"-{written}-") == "-***-"


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", range(6))
def test_base64_of_surrounding_data_is_masked(before: int, encode: Callable[[bytes], bytes]) -> None:
    value, after = "a secret~?>of 30 letters/bytes", "and more"
    text = encode(b"x" * before + value.encode() + after.encode()).decode()
    head, mark, tail = Masker([value]).mask(text).partition("***")
    assert mark
    # The characters at both ends also encode neighbouring bytes.
    assert len(head) <= -(-8 * before // 6)
    assert len(tail.rstrip("=")) <= 1 + -(-8 * len(after) // 6)


def test_base64_in_lines_is_masked() -> None:
    value = "".join(map(chr, range(33, 127))) * 2
    assert set(Masker([value]).mask(encodebytes(value.encode()).decode()).split()) == {"***"}


def test_part_of_long_secret_is_masked() -> None:
    value = "".join(f"{number:05}" for number in range(1000))
    masker = Masker([value])
    for size in (1, 7, 512, 4096, 10_000):
        text = f"<{value}>{value}".encode()
        pieces = [text[index : index + size] for index in range(0, len(text), size)]
        assert masked(masker, *pieces) == b"<***>***"
    half = masked(masker, value[:2500].encode())
    assert half.startswith(MASK)
    assert len(half) < len(MASK) + BLOCK_BYTES


def test_only_possible_secret_prefix_is_held_back() -> None:
    masker = Masker(["password"])
    assert masker.feed("stdout", b"asked for a pass") == b"asked for a "
    assert masker.feed("stderr", b"word") == b"word"
    assert masker.feed("stdout", b"") == b""
    assert masker.feed("stdout", b"port: ") == b"passport: "
    assert masker.feed("stdout", b"pass") == b""
    assert masker.feed("stdout", b"word\n") == b"***\n"
    assert masker.feed("stdout", b"pass") == b""
    assert masker.flush("stdout") == b"pass"
    assert masker.flush("stdout") == b""


def test_secret_prefix_is_masked_at_cut_output() -> None:
    masker = Masker(["password", "word list"])
    masker.feed("stdout", b"the pass")
    assert masker.flush("stdout", cut=True) == b"***"
    assert masker.feed("stdout", b"the password") == b"the ***"
    assert masker.flush("stdout", cut=True) == b""
    assert masker.feed("stdout", b"the password l") == b"the ***"
    assert masker.flush("stdout") == b" l"
    assert masker.feed("stdout", b"the pas") == b"the "
    assert masker.flush("stdout", cut=True) == b"pas", "too short to reveal the secret"


def test_all_strings_in_json_are_masked() -> None:
    masker = Masker(["password", "12345678"])
    value = {"a password": ["password", 1, 12345678, -12345678.5, True, None, {"x": "y"}], "n": 1.5}
    assert masker.mask_json(value) == {"a ***": ["***", 1, "***", "-***.5", True, None, {"x": "y"}], "n": 1.5}


class CountingMasker(Masker):
    comparisons = 0

    def _match_length(self, data: bytes, start: int) -> int:
        self.comparisons += 1
        return super()._match_length(data, start)


@pytest.mark.parametrize("unit", [b"a" * 4095 + b"b", b"a", b"ab", b"a" * 511 + b"b"])
def test_masking_effort_depends_on_output_not_on_secret(unit: bytes) -> None:
    output = unit * (65_536 // len(unit))
    comparisons = []
    for letters in (1024, 4096, 65_536):
        masker = CountingMasker(["a" * letters])
        for start in range(0, len(output), 4096):
            masker.feed("stdout", output[start : start + 4096])
        comparisons.append(masker.comparisons)
        assert max(map(len, masker._needles)) <= BLOCK_BYTES
    assert max(comparisons) <= len(output) * (4096 + BLOCK_BYTES) // 4096
    assert all(earlier == later for earlier, later in pairwise(comparisons))


def test_no_masker_without_secrets() -> None:
    assert make_masker([]) is None
