"""What is searched for, and which lines match it: the last word, whatever the index thought."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import InvalidInput
from jobs.log_query import MAX_CHARACTERS, SHOWN_CHARACTERS, LogQuery, Mode, parse_query
from jobs.log_text import fold

letters = st.text(alphabet='abAB ß-İ_"中жЖ%\\1', max_size=30)


def words(text: str) -> LogQuery:
    return parse_query(text, Mode.WORDS)


def lines(query: LogQuery, text: str, carried: int = 0) -> list[str]:
    return [found.shown for found in query.find_lines(text, carried)]


def test_words_phrases_and_what_must_not_be_there() -> None:
    query = words('Disk "no space left" -warning -"as usual" DISK')
    assert query.wanted == ("disk", "no space left")
    assert query.excluded == ("warning", "as usual")
    text = "disk: No space left on /\nWARNING disk no space left\ndisk no  space left\nno space left, disk as usual\n"
    assert lines(query, text) == ["disk: No space left on /"]


@pytest.mark.parametrize(
    ("query", "line", "found"),
    [
        ("error", "Error: x", True),
        ("error", "errors", False),
        ("error", "my_error", False),
        ("error", "an-error.", True),
        ("error", "terror error", True),
        ("/var/log/app.log", "open /var/log/app.log failed", True),
        ("/var/log/app.log", "open /var/log/app.log2 failed", False),
        ("мир", "Привет, МИР!", True),
        ("мир", "мира", False),
        ("中文日", "这是中文日志", True),
        ("strasse", "Hauptstraße 5, Straße", True),
        ("file", "\x1b[31mﬁle\x1b[0m", True),
    ],
)
def test_words_are_whole_words_without_case(query: str, line: str, found: bool) -> None:
    assert bool(lines(words(query), line)) is found


@pytest.mark.parametrize("text", ["", "ab", "a b c", "-word", '""', 'one "two', "x" * (MAX_CHARACTERS + 1), "one\ntwo"])
def test_what_cannot_be_searched_for_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        words(text)
    assert refused.value.field == "q"
    if text not in ('""', "-word", 'one "two', "a b c"):
        with pytest.raises(InvalidInput):
            parse_query(text, Mode.SUBSTRING)


def test_too_many_words_are_refused() -> None:
    with pytest.raises(InvalidInput):
        words(" ".join(f"w{number}x" for number in range(17)))


@given(letters)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        query = words(text)
        assert any(len(term) >= 3 for term in query.wanted)
        assert all(term == term.casefold() and '"' not in term for term in (*query.wanted, *query.excluded))


@given(letters.filter(lambda text: len(text) >= 3 and "\n" not in text), st.lists(letters, max_size=5))
def test_a_substring_is_found_where_it_is_and_its_line_holds_every_needle(wanted: str, others: list[str]) -> None:
    query = parse_query(wanted, Mode.SUBSTRING)
    text = "\n".join(others)
    expected = [line for line in reversed(others) if wanted.casefold() in line.casefold()]
    assert lines(query, text) == expected
    for line in expected:
        assert all(needle in fold(line) for needle in query.needles)


@given(st.lists(letters, min_size=1, max_size=5), st.data())
def test_places_are_those_of_the_line_as_it_was_written(others: list[str], data: st.DataObject) -> None:
    text = "\n".join(others)
    wanted = data.draw(letters.filter(lambda text: len(text) >= 3))
    for found in parse_query(wanted, Mode.SUBSTRING).find_lines(text):
        assert text[found.start :].startswith(found.shown)
        for start, end in found.matches:
            assert wanted.casefold() in found.shown[start:end].casefold()


def test_what_lies_in_the_carried_part_alone_was_found_before() -> None:
    query = parse_query("aba", Mode.SUBSTRING)
    assert lines(query, "abab") == ["abab"]
    assert lines(query, "abab", carried=4) == []
    assert lines(query, "ababa", carried=4) == ["ababa"]
    assert lines(query, "xyz\naba", carried=3) == ["aba"]
    assert lines(query, "ßßaba", carried=5) == []


def test_of_a_long_line_the_part_around_the_first_match_is_shown() -> None:
    line = "x" * 3000 + "Needle" + "y" * 3000 + "needle"
    (found,) = parse_query("needle", Mode.SUBSTRING).find_lines(line)
    assert len(found.shown) == SHOWN_CHARACTERS
    ((start, end),) = found.matches
    assert found.shown[start:end] == "Needle"
    (found,) = parse_query("xxx", Mode.SUBSTRING).find_lines("x" * 600)
    assert found.matches == [(0, SHOWN_CHARACTERS)]


@pytest.mark.parametrize(("text", "indexed"), [("abc", True), ("a-b-c", False), ("----", False), ("中文日", True)])
def test_what_the_index_can_tell_about(text: str, indexed: bool) -> None:
    assert parse_query(text, Mode.SUBSTRING).is_indexed is indexed
