"""Queries of log search and the lines they match."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.logs.query import MAX_QUERY_CHARACTERS, SNIPPET_CHARACTERS, LogQuery, SearchMode, parse_query
from jobs.logs.segments import fold

letters = st.text(alphabet='abAB ß-İ_"中жЖ%\\1', max_size=30)


def words(text: str) -> LogQuery:
    return parse_query(text, SearchMode.WORDS)


def lines(query: LogQuery, text: str, carried: int = 0) -> list[str]:
    return [found.snippet for found in query.find_lines(text, carried)]


def test_words_phrases_and_exclusions() -> None:
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
def test_words_match_whole_words_ignoring_case(query: str, line: str, found: bool) -> None:
    assert bool(lines(words(query), line)) is found


@pytest.mark.parametrize(
    "text", ["", "ab", "a b c", "-word", '""', 'one "two', "x" * (MAX_QUERY_CHARACTERS + 1), "one\ntwo"]
)
def test_invalid_query_is_refused_for_field_q(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        words(text)
    assert refused.value.field == "q"
    if text not in ('""', "-word", 'one "two', "a b c"):
        with pytest.raises(InvalidInput):
            parse_query(text, SearchMode.SUBSTRING)


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
def test_substring_is_found_and_its_line_contains_every_needle(wanted: str, others: list[str]) -> None:
    query = parse_query(wanted, SearchMode.SUBSTRING)
    text = "\n".join(others)
    expected = [line for line in reversed(others) if wanted.casefold() in line.casefold()]
    assert lines(query, text) == expected
    for line in expected:
        assert all(needle in fold(line) for needle in query.needles)


@given(st.lists(letters, min_size=1, max_size=5), st.data())
def test_match_ranges_refer_to_the_original_line(others: list[str], data: st.DataObject) -> None:
    text = "\n".join(others)
    wanted = data.draw(letters.filter(lambda text: len(text) >= 3))
    for found in parse_query(wanted, SearchMode.SUBSTRING).find_lines(text):
        assert text[found.start :].startswith(found.snippet)
        for start, end in found.matches:
            assert wanted.casefold() in found.snippet[start:end].casefold()


def test_match_inside_the_carried_part_is_skipped() -> None:
    query = parse_query("aba", SearchMode.SUBSTRING)
    assert lines(query, "abab") == ["abab"]
    assert lines(query, "abab", carried=4) == []
    assert lines(query, "ababa", carried=4) == ["ababa"]
    assert lines(query, "xyz\naba", carried=3) == ["aba"]
    assert lines(query, "ßßaba", carried=5) == []


def test_snippet_of_a_long_line_is_cut_around_the_first_match() -> None:
    line = "x" * 3000 + "Needle" + "y" * 3000 + "needle"
    (found,) = parse_query("needle", SearchMode.SUBSTRING).find_lines(line)
    assert len(found.snippet) == SNIPPET_CHARACTERS
    ((start, end),) = found.matches
    assert found.snippet[start:end] == "Needle"
    (found,) = parse_query("xxx", SearchMode.SUBSTRING).find_lines("x" * 600)
    assert found.matches == [(0, SNIPPET_CHARACTERS)]


@pytest.mark.parametrize(("text", "indexed"), [("abc", True), ("a-b-c", False), ("----", False), ("中文日", True)])
def test_query_without_a_trigram_is_not_indexed(text: str, indexed: bool) -> None:
    assert parse_query(text, SearchMode.SUBSTRING).is_indexed is indexed
