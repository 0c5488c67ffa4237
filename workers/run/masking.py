"""Masks the secrets of a run in its output, however the output is split into pieces.

Invariant: the masked output does not depend on the splits, contains no whole secret, and is otherwise identical to the
run's output. Only a possible beginning of a secret is held back until more of its stream arrives or the stream ends.

Every byte is examined a bounded number of times. Text without secrets costs one set lookup per aligned word of 2 or 4
bytes: any occurrence of a needle covers a whole aligned word, which is one of the needle's first few words.
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

from jobs.domain.worker_protocol import ClaimedSecret

MASK = b"***"
MIN_SECRET_BYTES = 4
# For single lines and encoded values; shorter ones would match unrelated output.
MIN_PART_BYTES = 8
# Longer secrets are searched in blocks: this bounds the held-back output, and masks parts of a long secret as well.
BLOCK_BYTES = 512
WINDOW_WORDS = 256  # checked at once; only a window with a candidate word is scanned word by word
BASE64_LINE_LENGTHS = (64, 76)  # as openssl and base64 break them
# As Go, PHP and .NET, and Gson escape JSON for HTML pages.
JSON_ESCAPED = [{ord(letter): f"\\u{ord(letter):04x}" for letter in letters} for letters in ("<>&", "<>&'", "<>&='")]
JSON_DIGITS = re.compile(r"\\u([0-9a-f]{4})")
URL_SAFE = ("/", "", "!'()*~")  # the last is what encodeURIComponent leaves
URL_DIGITS = re.compile("%[0-9A-F]{2}")


@dataclass(slots=True)
class _StreamState:
    held: bytes = b""
    marked: bool = False  # the last released output is the mask
    covered: int = 0  # bytes of `held` that this mask already covers


class Masker:
    def __init__(self, values: Iterable[str]) -> None:
        self._needles = sorted(
            {block for value in values for form in encoded_forms(value) for block in _split_into_blocks(form)}
        )
        self._longest = max(map(len, self._needles), default=0)
        self._within = list(_longest_prefixes(self._needles))
        shortest = min(map(len, self._needles), default=MIN_SECRET_BYTES)
        self._width = 4 if shortest >= 7 else 2
        self._kind: Literal["H", "I"] = "I" if shortest >= 7 else "H"
        self._words = frozenset(
            memoryview(needle[start : start + self._width]).cast(self._kind)[0]
            for needle in self._needles
            for start in range(self._width)
        )
        self._prefixes = frozenset(needle[:MIN_SECRET_BYTES] for needle in self._needles)
        self._states: dict[str, _StreamState] = {}

    def feed(self, stream: str, data: bytes) -> bytes:
        """Add output of a stream; return the masked output that can be released."""
        state = self._states.setdefault(stream, _StreamState())
        data = state.held + data
        return self._advance(state, data, self._find_partial_match(data))

    def flush(self, stream: str, *, cut: bool = False) -> bytes:
        """Return the rest at the end of a stream; `cut`: it was interrupted, perhaps within a secret."""
        state = self._states.pop(stream, _StreamState())
        end = self._find_partial_match(state.held) if cut else len(state.held)
        if len(state.held) - end < MIN_SECRET_BYTES:
            end = len(state.held)
        released = self._advance(state, state.held, end)
        return released + (MASK if len(state.held) > state.covered and not state.marked else b"")

    def mask(self, text: str) -> str:
        """Mask a whole text."""
        data = text.encode("utf-8", "backslashreplace")
        masked = self._advance(_StreamState(), data, len(data))
        return text if masked == data else masked.decode("utf-8", "replace")

    def mask_json(self, value: object) -> object:
        """Mask every string in a JSON value, including keys, and numbers that are secrets."""
        if isinstance(value, dict):
            return {self.mask(name): self.mask_json(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.mask_json(part) for part in value]
        if isinstance(value, str):
            return self.mask(value)
        text = json.dumps(value)
        masked = self.mask(text)
        return value if masked == text else masked

    def _advance(self, state: _StreamState, data: bytes, end: int) -> bytes:
        """Return the masked output before `end`, and hold the rest."""
        spans = [(0, state.covered)] if state.marked else []
        for start, stop in self._find_matches(data):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((start, stop))
        released, position = [], 0
        for number, (start, stop) in enumerate(spans):
            continues = state.marked and number == 0
            if start >= end and not continues:
                break
            released += [data[position:start], b"" if continues else MASK]
            position = stop
        released.append(data[position:end])
        state.marked = position >= end and (state.marked or position > 0)
        state.covered = position - end if state.marked else 0
        state.held = data[end:]
        return b"".join(released)

    def _find_matches(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of the longest needle at each position, in order."""
        words = memoryview(data)[: len(data) // self._width * self._width].cast(self._kind)
        for first in range(0, len(words), WINDOW_WORDS):
            window = words[first : first + WINDOW_WORDS]
            if self._words.isdisjoint(window):
                continue
            for number in compress(count(first), map(self._words.__contains__, window)):
                end = number * self._width + 1
                for start in range(max(0, end - self._width), end):
                    if length := self._match_length(data, start):
                        yield start, start + length

    def _match_length(self, data: bytes, start: int) -> int:
        """Return the length of the longest needle at this position, or 0.

        All needles that are prefixes of the text sort before it. The longest is the needle right before it, or reached
        from that one through `_within`, which links each needle to its longest prefix.
        """
        text = data[start : start + self._longest]
        number = bisect_right(self._needles, text) - 1
        while number >= 0:
            if text.startswith(self._needles[number]):
                return len(self._needles[number])
            number = self._within[number]
        return 0

    def _find_partial_match(self, data: bytes) -> int:
        """Return where the first needle begins that more data might complete, or the end of the data."""
        for start in range(max(0, len(data) - self._longest + 1), len(data)):
            head = data[start : start + MIN_SECRET_BYTES]
            if len(head) == MIN_SECRET_BYTES and head not in self._prefixes:
                continue
            rest = data[start:]
            number = bisect_right(self._needles, rest)
            if number < len(self._needles) and self._needles[number].startswith(rest):
                return start
        return len(data)


def make_masker(secrets: Iterable[ClaimedSecret]) -> Masker | None:
    """Return a masker, or None if there are no secrets."""
    values = [secret.value for secret in secrets]
    return Masker(values) if values else None


def encoded_forms(value: str) -> set[bytes]:
    """Return a secret as it is, line by line, and in common encodings."""
    exact = {variant for text in (value, value.strip()) for variant in _line_ending_variants(text)}
    lines = {line.strip() for line in value.splitlines()}
    variants = {variant.encode() for text in exact | lines for variant in _json_variants(text)}
    variants.update(variant for text in exact for variant in (*_url_variants(text), *_base64_variants(text.encode())))
    parts = {line.encode() for line in lines} | variants
    return {text.encode() for text in exact if len(text.encode()) >= MIN_SECRET_BYTES} | {
        part for part in parts if len(part) >= MIN_PART_BYTES
    }


def _line_ending_variants(text: str) -> set[str]:
    """Return the text with the line endings of text mode and of terminals."""
    plain = text.replace("\r\n", "\n")
    return {text, plain, plain.replace("\n", "\r\n")}


def _json_variants(text: str) -> set[str]:
    """Return JSON encodings: libraries differ in optional escapes and in the case of hex digits."""
    encoded = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    encoded |= {variant.translate(table) for variant in encoded for table in JSON_ESCAPED}
    encoded |= {variant.replace("/", "\\/") for variant in encoded}
    return encoded | {JSON_DIGITS.sub(lambda found: f"\\u{found[1].upper()}", variant) for variant in encoded}


def _url_variants(text: str) -> set[bytes]:
    encoded = {quote(text, safe=safe) for safe in URL_SAFE} | {quote_plus(text)}
    lower = {URL_DIGITS.sub(lambda found: found[0].lower(), variant) for variant in encoded}
    return {variant.encode() for variant in encoded | lower}


def _base64_variants(data: bytes) -> Iterator[bytes]:
    for encoded in _base64(data):
        yield encoded
        yield encoded.translate(bytes.maketrans(b"+/", b"-_"))


def _base64(data: bytes) -> Iterator[bytes]:
    alone = b64encode(data)
    yield alone
    for width in BASE64_LINE_LENGTHS:
        yield from (alone[start : start + width] for start in range(0, len(alone), width))
    for before in range(3):
        # Inside longer data: the first and last characters also encode neighbouring bytes, and are left out.
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        yield b64encode(bytes(before) + data)[first:last]


def _split_into_blocks(form: bytes) -> Iterator[bytes]:
    """Yield blocks of equal length; the last one overlaps the one before."""
    if len(form) <= BLOCK_BYTES:
        yield form
        return
    for start in (*range(0, len(form) - BLOCK_BYTES, BLOCK_BYTES), len(form) - BLOCK_BYTES):
        yield form[start : start + BLOCK_BYTES]


def _longest_prefixes(needles: list[bytes]) -> Iterator[int]:
    """Yield for each sorted needle the index of its longest prefix among the others, or -1."""
    open_ones: list[int] = []
    for number, needle in enumerate(needles):
        while open_ones and not needle.startswith(needles[open_ones[-1]]):
            open_ones.pop()
        yield open_ones[-1] if open_ones else -1
        open_ones.append(number)
