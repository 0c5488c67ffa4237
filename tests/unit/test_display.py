"""Whatever a program wrote, what is shown holds no character that steers a screen; the two copies of the rule agree."""

from __future__ import annotations

import sys
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from cli import terminal
from jobs.display import neutralise, show_log

HARMLESS = "\n\t\u200c\u200d"


def test_the_command_line_has_the_same_rule_for_every_character() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for keep in ("", "\n\t"):
        same = neutralise(everything, keep=keep) == terminal.neutralise(everything, keep=keep)
        assert same, "they differ"


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\x1b[2J\x1b]0;owned\x07\x9b31m\r\x00\x7f")
@example("\u202eevil\u2066\u2028\u2029\x85\ufeff\U000e0001".encode())
@example(b"\xed\xa0\x80 half of a pair, \xe2\x82 half of a character")
def test_nothing_that_is_shown_steers_a_screen(data: bytes) -> None:
    for character in show_log(data):
        steers = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        assert character in HARMLESS or not steers, repr(character)


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert show_log(text.encode()) == text


def test_what_is_not_obeyed_is_seen() -> None:
    shown = show_log(b"a\x1b[31m\x00\r\nb\rc\xff" + "\u202e\U000e0001".encode())
    assert shown == "a\\x1b[31m\\x00\nb\\x0dc\ufffd\\u202e\\U000e0001"
