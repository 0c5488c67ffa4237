"""The query language of log search: parses words or a substring, and decides which lines match.

Pure. Invariant: every matching line, once folded, contains each of `needles`, so an index over folded text misses none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from jobs.domain.errors import InvalidInput
from jobs.logs.segments import CARRY_CHARACTERS, fold

MIN_TERM_CHARACTERS = 3
MAX_QUERY_CHARACTERS = 256
MAX_TERMS = 16
SNIPPET_CHARACTERS = 500
SNIPPET_CONTEXT_CHARACTERS = 100

# In one line; more than fit into the carried part of a segment.
MAX_MATCHES_PER_TERM = 2 * CARRY_CHARACTERS

_TERM = re.compile(r'(-?)"([^"]*)"|(-?)([^\s"]+)')
# Scripts written without spaces, or with suffixes attached: a word may end anywhere between these characters.
_UNSPACED_SCRIPTS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
# An ANSI colour ends with a letter that is not part of the following word.
_ANSI_COLOR = re.compile(r"\x1b\[[0-9;]{0,20}m\Z")
_MAX_ANSI_COLOR_CHARACTERS = 24
_INDEXABLE = re.compile("[0-9a-z]{3}")


class SearchMode(StrEnum):
    WORDS = "words"
    SUBSTRING = "substring"


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A matching line: its start in the text, its snippet, and the matches as ranges of the snippet."""

    start: int
    snippet: str
    matches: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LogQuery:
    mode: SearchMode
    wanted: Sequence[str]  # case-folded
    excluded: Sequence[str] = ()

    @property
    def needles(self) -> list[str]:
        return [fold(term) for term in self.wanted]

    @property
    def is_indexed(self) -> bool:
        """Whether any needle has a trigram of letters and digits, which the index needs."""
        return any(_INDEXABLE.search(needle) for needle in self.needles)

    def find_lines(self, text: str, carried: int = 0) -> Iterator[LineMatch]:
        """Yield matching lines, last first. A match inside the carried part belongs to the previous segment."""
        folded = text.casefold()
        lines = self._find_candidate_lines(folded) if len(folded) == len(text) else _iterate_lines(text)
        for start, end in lines:
            line = text[start:end]
            places = self._match(line)
            if any(stop > carried - start for _, stop in places):
                yield _cut_snippet(start, line, _merge_overlapping(places))

    def _find_candidate_lines(self, folded: str) -> Iterator[tuple[int, int]]:
        rarest = max(self.wanted, key=len)
        end = len(folded)
        while (at := folded.rfind(rarest, 0, max(end, 0))) >= 0:
            start, end = folded.rfind("\n", 0, at) + 1, folded.find("\n", at)
            yield start, end if end >= 0 else len(folded)
            end = start - 1

    def _match(self, line: str) -> list[tuple[int, int]]:
        folded = line.casefold()
        places: list[tuple[int, int]] = []
        for term in self.wanted:
            found = list(islice(self._places(term, folded), MAX_MATCHES_PER_TERM))
            if not found:
                return []
            places += found
        if any(any(True for _ in self._places(term, folded)) for term in self.excluded):
            return []
        return places if len(folded) == len(line) else _map_to_original(line, places)

    def _places(self, term: str, folded: str) -> Iterator[tuple[int, int]]:
        at = folded.find(term)
        while at >= 0:
            end = at + len(term)
            if self.mode is SearchMode.SUBSTRING or not (_is_inside_word(folded, at) or _is_inside_word(folded, end)):
                yield at, end
            at = folded.find(term, at + 1)


def parse_query(text: str, mode: SearchMode) -> LogQuery:
    """Parse words (all on one line; `"a phrase"` verbatim; `-word` excluded) or one verbatim substring."""
    text = text.replace("\0", "\ufffd")
    if len(text) > MAX_QUERY_CHARACTERS:
        raise InvalidInput("q", f"A search has at most {MAX_QUERY_CHARACTERS} characters; shorten it.")
    if "\n" in text:
        raise InvalidInput("q", "A search matches single lines: remove the line break.")
    if mode is SearchMode.SUBSTRING:
        wanted, excluded = [text.casefold()], list[str]()
    else:
        wanted, excluded = _parse_words(text)
    if not any(len(term) >= MIN_TERM_CHARACTERS for term in wanted):
        raise InvalidInput("q", f"Search for at least one term of {MIN_TERM_CHARACTERS} characters or more.")
    if len(wanted) + len(excluded) > MAX_TERMS:
        raise InvalidInput("q", f"A search has at most {MAX_TERMS} words and phrases; remove some.")
    return LogQuery(mode, tuple(wanted), tuple(excluded))


def _parse_words(text: str) -> tuple[list[str], list[str]]:
    if text.count('"') % 2:
        raise InvalidInput("q", 'Close the quotation mark; to search for a ", use mode=substring.')
    wanted: dict[str, None] = {}
    excluded: dict[str, None] = {}
    for phrase_sign, phrase, word_sign, word in _TERM.findall(text):
        term = (phrase or word).casefold()
        if term:
            (excluded if phrase_sign or word_sign else wanted)[term] = None
    return list(wanted), list(excluded)


def _iterate_lines(text: str) -> Iterator[tuple[int, int]]:
    end = len(text)
    while end >= 0:
        start = text.rfind("\n", 0, end) + 1
        yield start, end
        end = start - 1


def _is_inside_word(text: str, at: int) -> bool:
    """Whether a word continues across this position."""
    if not 0 < at < len(text) or _ANSI_COLOR.search(text[max(0, at - _MAX_ANSI_COLOR_CHARACTERS) : at]):
        return False
    return all((c.isalnum() or c == "_") and not _UNSPACED_SCRIPTS.match(c) for c in text[at - 1 : at + 1])


def _map_to_original(line: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Map ranges of the case-folded line to the line; folding may lengthen it (ß becomes ss)."""
    origins = [index for index, character in enumerate(line) for _ in character.casefold()]
    return [(origins[start], origins[end - 1] + 1) for start, end in places]


def _merge_overlapping(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _cut_snippet(start: int, line: str, matches: Sequence[tuple[int, int]]) -> LineMatch:
    if len(line) <= SNIPPET_CHARACTERS:
        return LineMatch(start, line, matches)
    first = max(0, min(matches[0][0] - SNIPPET_CONTEXT_CHARACTERS, len(line) - SNIPPET_CHARACTERS))
    last = first + SNIPPET_CHARACTERS
    inside = [(max(a, first) - first, min(b, last) - first) for a, b in matches if a < last and b > first]
    return LineMatch(start, line[first : first + SNIPPET_CHARACTERS], inside)
