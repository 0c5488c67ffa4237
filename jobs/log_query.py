"""What is searched for in logs: words or a substring, found in lines; pure, and the last word on what matches.

Invariant: every line that matches contains each of `needles` once it is folded: an index over folded text misses none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from jobs.errors import InvalidInput
from jobs.log_text import CARRY_CHARACTERS, fold

MIN_CHARACTERS = 3
MAX_CHARACTERS = 256
MAX_TERMS = 16
SHOWN_CHARACTERS = 500
SHOWN_BEFORE_MATCH = 100

# Of one term in one line; more than can lie in the part that is carried.
MOST_PLACES = 2 * CARRY_CHARACTERS

_TERM = re.compile(r'(-?)"([^"]*)"|(-?)([^\s"]+)')
# Between these a word may end without a sign: scripts that are written without blanks, or with endings that stick.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
# Colours end with a letter, which is no part of the word that follows.
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m\Z")
_LONGEST_COLOUR = 24
_INDEXABLE = re.compile("[0-9a-z]{3}")


class Mode(StrEnum):
    WORDS = "words"
    SUBSTRING = "substring"


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches: where it begins in its text, what is shown of it, and where the matches are in that."""

    start: int
    shown: str
    matches: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LogQuery:
    mode: Mode
    wanted: Sequence[str]  # without case
    excluded: Sequence[str] = ()

    @property
    def needles(self) -> list[str]:
        return [fold(term) for term in self.wanted]

    @property
    def is_indexed(self) -> bool:
        """Whether the index, which knows letters and digits in threes, can tell anything about it."""
        return any(_INDEXABLE.search(needle) for needle in self.needles)

    def find_lines(self, text: str, carried: int = 0) -> Iterator[Match]:
        """The lines that match, the last first. What lies in the carried part alone was found in the text before."""
        folded = text.casefold()
        lines = self._likely_lines(folded) if len(folded) == len(text) else _all_lines(text)
        for start, end in lines:
            line = text[start:end]
            places = self._match(line)
            if any(stop > carried - start for _, stop in places):
                yield _shown(start, line, _merged(places))

    def _likely_lines(self, folded: str) -> Iterator[tuple[int, int]]:
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
            found = list(islice(self._places(term, folded), MOST_PLACES))
            if not found:
                return []
            places += found
        if any(any(True for _ in self._places(term, folded)) for term in self.excluded):
            return []
        return places if len(folded) == len(line) else _unfolded(line, places)

    def _places(self, term: str, folded: str) -> Iterator[tuple[int, int]]:
        at = folded.find(term)
        while at >= 0:
            end = at + len(term)
            if self.mode is Mode.SUBSTRING or not (_goes_on(folded, at) or _goes_on(folded, end)):
                yield at, end
            at = folded.find(term, at + 1)


def parse_query(text: str, mode: Mode) -> LogQuery:
    """Words: all of them on one line, `"a phrase"` as it is, `-word` not. A substring is taken as it is written."""
    text = text.replace("\0", "\ufffd")
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput("q", f"At most {MAX_CHARACTERS} characters can be searched for.")
    if "\n" in text:
        raise InvalidInput("q", "Results are lines: what is searched for cannot reach over the end of one.")
    if mode is Mode.SUBSTRING:
        wanted, excluded = [text.casefold()], list[str]()
    else:
        wanted, excluded = _parse_words(text)
    if not any(len(term) >= MIN_CHARACTERS for term in wanted):
        raise InvalidInput("q", f"Search for something of at least {MIN_CHARACTERS} characters.")
    if len(wanted) + len(excluded) > MAX_TERMS:
        raise InvalidInput("q", f"At most {MAX_TERMS} words and phrases can be searched for at once.")
    return LogQuery(mode, tuple(wanted), tuple(excluded))


def _parse_words(text: str) -> tuple[list[str], list[str]]:
    if text.count('"') % 2:
        raise InvalidInput("q", 'A phrase that begins with a quotation mark ends with one; mode=substring finds a ".')
    wanted: dict[str, None] = {}
    excluded: dict[str, None] = {}
    for phrase_sign, phrase, word_sign, word in _TERM.findall(text):
        term = (phrase or word).casefold()
        if term:
            (excluded if phrase_sign or word_sign else wanted)[term] = None
    return list(wanted), list(excluded)


def _all_lines(text: str) -> Iterator[tuple[int, int]]:
    end = len(text)
    while end >= 0:
        start = text.rfind("\n", 0, end) + 1
        yield start, end
        end = start - 1


def _goes_on(text: str, at: int) -> bool:
    """Whether a word goes on across this place."""
    if not 0 < at < len(text) or _COLOUR.search(text[max(0, at - _LONGEST_COLOUR) : at]):
        return False
    return all((c.isalnum() or c == "_") and not _UNSPACED.match(c) for c in text[at - 1 : at + 1])


def _unfolded(line: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Some characters are several without case: ß is ss."""
    origins = [index for index, character in enumerate(line) for _ in character.casefold()]
    return [(origins[start], origins[end - 1] + 1) for start, end in places]


def _merged(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _shown(start: int, line: str, matches: Sequence[tuple[int, int]]) -> Match:
    if len(line) <= SHOWN_CHARACTERS:
        return Match(start, line, matches)
    first = max(0, min(matches[0][0] - SHOWN_BEFORE_MATCH, len(line) - SHOWN_CHARACTERS))
    last = first + SHOWN_CHARACTERS
    inside = [(max(a, first) - first, min(b, last) - first) for a, b in matches if a < last and b > first]
    return Match(start, line[first : first + SHOWN_CHARACTERS], inside)
