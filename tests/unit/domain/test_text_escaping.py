"""Escaping of control characters; the server and the command line use the same rule."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from jobs.domain.text_escaping import decode_log, escape_control_characters
from punctual_cli.output import terminal

HARMLESS = "\n\t\u200c\u200d"


def test_command_line_escapes_the_same_characters() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for keep in ("", "\n\t"):
        same = escape_control_characters(everything, keep=keep) == terminal.escape_control_characters(
            everything, keep=keep
        )
        assert same, "they differ"


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\x1b[2J\x1b]0;owned\x07\x9b31m\r\x00\x7f")
@example("\u202eevil\u2066\u2028\u2029\x85\ufeff\U000e0001".encode())
@example(b"\xed\xa0\x80 half of a pair, \xe2\x82 half of a character")
def test_decoded_logs_contain_no_control_characters(data: bytes) -> None:
    for character in decode_log(data):
        steers = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert character in HARMLESS or not steers, repr(character)


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert decode_log(text.encode()) == text


def test_control_characters_become_visible() -> None:
    escaped = decode_log(b"a\x1b[31m\x00\r\nb\rc\xff" + "\u202e\U000e0001".encode())
    assert escaped == "a\\x1b[31m\\x00\nb\\x0dc\ufffd\\u202e\\U000e0001"
