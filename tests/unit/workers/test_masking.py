"""Secrets in what a run writes: none comes through, however it is cut, and nothing else is touched or kept for long."""

from __future__ import annotations

import json
from base64 import b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.masking import BLOCK_BYTES, MARK, Masker, forms_of, masker_for

fast = settings(deadline=None, database=None, max_examples=200)
# Few letters, so that secrets occur, overlap and hold each other.
VALUES = st.lists(st.text("ab\n", min_size=4, max_size=12), min_size=1, max_size=4)
PIECES = st.lists(st.binary(max_size=8) | st.text("ab\n", max_size=24).map(str.encode), max_size=12)


def masked(masker: Masker, *pieces: bytes) -> bytes:
    return b"".join([*(masker.feed("stdout", piece) for piece in pieces), masker.flush("stdout")])


def masked_slowly(forms: set[bytes], data: bytes) -> bytes:
    """Whatever is part of an occurrence, one mark for all that touch each other."""
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
            out += MARK
    return out


@fast
@given(VALUES, PIECES)
def test_however_it_is_cut_the_same_comes_out(values: list[str], pieces: list[bytes]) -> None:
    forms = {form for value in values for form in forms_of(value)}
    whole = b"".join(pieces)
    expected = masked_slowly(forms, whole)
    assert masked(Masker(values), whole) == expected
    assert masked(Masker(values), *pieces) == expected
    assert masked(Masker(values), *(whole[index : index + 1] for index in range(len(whole)))) == expected


@fast
@given(VALUES, PIECES)
def test_no_secret_comes_through_and_nothing_else_is_touched(values: list[str], pieces: list[bytes]) -> None:
    whole = b"".join(pieces).replace(b"*", b"")  # with which a mark could make a secret
    out = masked(Masker(values), whole)
    assert not [value for value in values if value.encode() in out]
    if not any(form in whole for value in values for form in forms_of(value)):
        assert out == whole


@fast
@given(st.text(min_size=4), st.binary(max_size=5), st.binary(max_size=5))
def test_a_text_of_any_letters(value: str, before: bytes, after: bytes) -> None:
    value = value.encode("utf-8", "ignore").decode() + "abcd"
    out = masked(Masker([value]), before + value.encode() + after)
    assert MARK in out
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
def test_examples(values: list[str], text: str, expected: str) -> None:
    assert masked(Masker(values), text.encode()).decode() == expected
    assert Masker(values).mask(text) == expected


@pytest.mark.parametrize("value", ['pa ss/wö"rd+1', "simple-secret", "two lines\nand a \\ tab\t", "?>?>?>?>?>?>~~~"])
def test_other_ways_to_write_it(value: str) -> None:
    data = value.encode()
    guises = [
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        b64encode(data).decode(),
        urlsafe_b64encode(data).decode(),
    ]
    for guise in guises:
        assert Masker([value]).mask(f"<{guise}>") == "<***>", guise


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
def test_as_other_languages_write_it(value: str, written: str) -> None:
    assert Masker([value]).mask(f"-{written}-") == "-***-"


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", range(6))
def test_base64_of_more_than_the_secret(before: int, encode: Callable[[bytes], bytes]) -> None:
    value, after = "a secret~?>of 30 letters/bytes", "and more"
    text = encode(b"x" * before + value.encode() + after.encode()).decode()
    head, mark, tail = Masker([value]).mask(text).partition("***")
    assert mark
    # At both ends, a character that says something of both.
    assert len(head) <= -(-8 * before // 6)
    assert len(tail.rstrip("=")) <= 1 + -(-8 * len(after) // 6)


def test_base64_in_lines() -> None:
    value = "".join(map(chr, range(33, 127))) * 2
    assert set(Masker([value]).mask(encodebytes(value.encode()).decode()).split()) == {"***"}


def test_a_long_secret_is_masked_also_in_part() -> None:
    value = "".join(f"{number:05}" for number in range(1000))
    masker = Masker([value])
    for size in (1, 7, 512, 4096, 10_000):
        text = f"<{value}>{value}".encode()
        pieces = [text[index : index + size] for index in range(0, len(text), size)]
        assert masked(masker, *pieces) == b"<***>***"
    half = masked(masker, value[:2500].encode())
    assert half.startswith(MARK)
    assert len(half) < len(MARK) + BLOCK_BYTES


def test_only_what_may_be_the_beginning_of_a_secret_waits() -> None:
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


def test_the_beginning_of_a_secret_does_not_come_through_where_the_output_was_cut() -> None:
    masker = Masker(["password", "word list"])
    masker.feed("stdout", b"the pass")
    assert masker.flush("stdout", cut=True) == b"***"
    assert masker.feed("stdout", b"the password") == b"the ***"
    assert masker.flush("stdout", cut=True) == b""
    assert masker.feed("stdout", b"the password l") == b"the ***"
    assert masker.flush("stdout") == b" l"
    assert masker.feed("stdout", b"the pas") == b"the "
    assert masker.flush("stdout", cut=True) == b"pas", "too little of it to tell anything"


def test_everything_in_json() -> None:
    masker = Masker(["password", "12345678"])
    value = {"a password": ["password", 1, 12345678, -12345678.5, True, None, {"x": "y"}], "n": 1.5}
    assert masker.mask_json(value) == {"a ***": ["***", 1, "***", "-***.5", True, None, {"x": "y"}], "n": 1.5}


class CountingMasker(Masker):
    looks = 0

    def _length_at(self, data: bytes, start: int) -> int:
        self.looks += 1
        return super()._length_at(data, start)


@pytest.mark.parametrize("unit", [b"a" * 4095 + b"b", b"a", b"ab", b"a" * 511 + b"b"])
def test_work_grows_with_the_output_and_not_with_the_secret(unit: bytes) -> None:
    output = unit * (65_536 // len(unit))
    looks = []
    for letters in (1024, 4096, 65_536):
        masker = CountingMasker(["a" * letters])
        for start in range(0, len(output), 4096):
            masker.feed("stdout", output[start : start + 4096])
        looks.append(masker.looks)
        assert max(map(len, masker._needles)) <= BLOCK_BYTES
    assert max(looks) <= len(output) * (4096 + BLOCK_BYTES) // 4096
    assert all(earlier == later for earlier, later in pairwise(looks))


def test_without_secrets_there_is_no_masker() -> None:
    assert masker_for([]) is None
