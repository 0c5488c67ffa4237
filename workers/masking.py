"""Takes the secrets of a run out of what it writes, in whatever pieces that comes.

Invariant: what is given out does not depend on how the output was cut, holds no secret whole, and is the run's own byte
for byte where it wrote none. Only what may be the beginning of a secret is kept back, until more of that stream comes
or it ends: given out earlier, the two halves would stand side by side.

Every byte is looked at a bounded number of times, whatever the secrets and the output are. Text without secrets costs
one look at every fourth byte, by a trick: whoever occurs in it covers a whole aligned word of it, which is then one of
the first few words of that needle.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress, count
from typing import Literal
from urllib.parse import quote, quote_plus

from jobs.protocol import ClaimedSecret

MARK = b"***"
SHORTEST_BYTES = 4
# Of a line, or of a value in another guise: less of it would be found in what has nothing to do with it.
SHORTEST_PART_BYTES = 8
# What is longer is looked for in blocks: it bounds what is kept back, and a part of a long secret is masked as well.
BLOCK_BYTES = 512
WINDOW_WORDS = 256  # looked at in one go: one suspicious word makes all of them be looked at one by one
BASE64_LINES = (64, 76)  # as openssl and base64 break them
# As Go, PHP and .NET, and Gson write JSON that may stand in a page.
JSON_ESCAPED = [{ord(letter): f"\\u{ord(letter):04x}" for letter in letters} for letters in ("<>&", "<>&'", "<>&='")]
JSON_DIGITS = re.compile(r"\\u([0-9a-f]{4})")
URL_SAFE = ("/", "", "!'()*~")  # the last is what encodeURIComponent leaves
URL_DIGITS = re.compile("%[0-9A-F]{2}")


@dataclass(slots=True)
class _State:
    held: bytes = b""
    marked: bool = False  # the last that was given out is the mark
    covered: int = 0  # so much of what is held is under that mark


class Masker:
    def __init__(self, values: Iterable[str]) -> None:
        self._needles = sorted({block for value in values for form in forms_of(value) for block in _blocks(form)})
        self._longest = max(map(len, self._needles), default=0)
        self._within = list(_longest_beginnings(self._needles))
        shortest = min(map(len, self._needles), default=SHORTEST_BYTES)
        self._width = 4 if shortest >= 7 else 2
        self._kind: Literal["H", "I"] = "I" if shortest >= 7 else "H"
        self._words = frozenset(
            memoryview(needle[start : start + self._width]).cast(self._kind)[0]
            for needle in self._needles
            for start in range(self._width)
        )
        self._heads = frozenset(needle[:SHORTEST_BYTES] for needle in self._needles)
        self._states: dict[str, _State] = {}

    def feed(self, stream: str, data: bytes) -> bytes:
        """What may be given out of the stream by now."""
        state = self._states.setdefault(stream, _State())
        data = state.held + data
        return self._advance(state, data, self._first_open(data))

    def flush(self, stream: str, *, cut: bool = False) -> bytes:
        """The rest, at the end of the stream; `cut`: it would have gone on, perhaps with the rest of a secret."""
        state = self._states.pop(stream, _State())
        end = self._first_open(state.held) if cut else len(state.held)
        if len(state.held) - end < SHORTEST_BYTES:
            end = len(state.held)
        given = self._advance(state, state.held, end)
        return given + (MARK if len(state.held) > state.covered and not state.marked else b"")

    def mask(self, text: str) -> str:
        """All of a text at once."""
        data = text.encode("utf-8", "backslashreplace")
        masked = self._advance(_State(), data, len(data))
        return text if masked == data else masked.decode("utf-8", "replace")

    def mask_json(self, value: object) -> object:
        """Every text in it, also the names, and numbers that are secrets."""
        if isinstance(value, dict):
            return {self.mask(name): self.mask_json(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.mask_json(part) for part in value]
        if isinstance(value, str):
            return self.mask(value)
        written = json.dumps(value)
        masked = self.mask(written)
        return value if masked == written else masked

    def _advance(self, state: _State, data: bytes, end: int) -> bytes:
        """Gives out what is before `end`, and holds the rest."""
        spans = [(0, state.covered)] if state.marked else []
        for start, stop in self._occurrences(data):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((start, stop))
        given, position = [], 0
        for number, (start, stop) in enumerate(spans):
            goes_on = state.marked and number == 0
            if start >= end and not goes_on:
                break
            given += [data[position:start], b"" if goes_on else MARK]
            position = stop
        given.append(data[position:end])
        state.marked = position >= end and (state.marked or position > 0)
        state.covered = position - end if state.marked else 0
        state.held = data[end:]
        return b"".join(given)

    def _occurrences(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Wherever a needle is, the longest that begins there; in order."""
        words = memoryview(data)[: len(data) // self._width * self._width].cast(self._kind)
        for first in range(0, len(words), WINDOW_WORDS):
            window = words[first : first + WINDOW_WORDS]
            if self._words.isdisjoint(window):
                continue
            for number in compress(count(first), map(self._words.__contains__, window)):
                end = number * self._width + 1
                for start in range(max(0, end - self._width), end):
                    if length := self._length_at(data, start):
                        yield start, start + length

    def _length_at(self, data: bytes, start: int) -> int:
        """Of the longest needle there, or 0.

        In sorted order all needles that a text begins with come before it, and each is the beginning of the last one
        before it, or of one that it begins with.
        """
        text = data[start : start + self._longest]
        number = bisect_right(self._needles, text) - 1
        while number >= 0:
            if text.startswith(self._needles[number]):
                return len(self._needles[number])
            number = self._within[number]
        return 0

    def _first_open(self, data: bytes) -> int:
        """Where the first needle begins that more data might complete, or the end."""
        for start in range(max(0, len(data) - self._longest + 1), len(data)):
            head = data[start : start + SHORTEST_BYTES]
            if len(head) == SHORTEST_BYTES and head not in self._heads:
                continue
            rest = data[start:]
            number = bisect_right(self._needles, rest)
            if number < len(self._needles) and self._needles[number].startswith(rest):
                return start
        return len(data)


def masker_for(secrets: Iterable[ClaimedSecret]) -> Masker | None:
    """None where there is nothing to mask: such a run's output is not even looked at."""
    values = [secret.value for secret in secrets]
    return Masker(values) if values else None


def forms_of(value: str) -> set[bytes]:
    """A secret as it is, line by line, and as programs like to write it."""
    exact = {written for text in (value, value.strip()) for written in _with_other_line_ends(text)}
    lines = {line.strip() for line in value.splitlines()}
    guises = {guise.encode() for text in exact | lines for guise in _json_guises(text)}
    guises.update(guise for text in exact for guise in (*_url_guises(text), *_base64_guises(text.encode())))
    parts = {line.encode() for line in lines} | guises
    return {text.encode() for text in exact if len(text.encode()) >= SHORTEST_BYTES} | {
        part for part in parts if len(part) >= SHORTEST_PART_BYTES
    }


def _with_other_line_ends(text: str) -> set[str]:
    """As it is, and as it comes out of a file in text mode or of a terminal."""
    plain = text.replace("\r\n", "\n")
    return {text, plain, plain.replace("\n", "\r\n")}


def _json_guises(text: str) -> set[str]:
    """Writers differ in what they escape beyond what they must, and in the case of their digits."""
    written = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    written |= {guise.translate(table) for guise in written for table in JSON_ESCAPED}
    written |= {guise.replace("/", "\\/") for guise in written}
    return written | {JSON_DIGITS.sub(lambda found: f"\\u{found[1].upper()}", guise) for guise in written}


def _url_guises(text: str) -> set[bytes]:
    written = {quote(text, safe=safe) for safe in URL_SAFE} | {quote_plus(text)}
    lower = {URL_DIGITS.sub(lambda found: found[0].lower(), guise) for guise in written}
    return {guise.encode() for guise in written | lower}


def _base64_guises(data: bytes) -> Iterator[bytes]:
    for encoded in _base64(data):
        yield encoded
        yield encoded.translate(bytes.maketrans(b"+/", b"-_"))


def _base64(data: bytes) -> Iterator[bytes]:
    alone = b64encode(data)
    yield alone
    for width in BASE64_LINES:
        yield from (alone[start : start + width] for start in range(0, len(alone), width))
    for before in range(3):
        # In the middle of something else: characters at its ends that say something of that, too, are not known.
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        yield b64encode(bytes(before) + data)[first:last]


def _blocks(form: bytes) -> Iterator[bytes]:
    """The last is as long as the others, and overlaps the one before."""
    if len(form) <= BLOCK_BYTES:
        yield form
        return
    for start in (*range(0, len(form) - BLOCK_BYTES, BLOCK_BYTES), len(form) - BLOCK_BYTES):
        yield form[start : start + BLOCK_BYTES]


def _longest_beginnings(needles: list[bytes]) -> Iterator[int]:
    """For each of the sorted needles, the number of the longest other one that it begins with, or -1."""
    open_ones: list[int] = []
    for number, needle in enumerate(needles):
        while open_ones and not needle.startswith(needles[open_ones[-1]]):
            open_ones.pop()
        yield open_ones[-1] if open_ones else -1
        open_ones.append(number)
