"""Cuts log bytes into searchable text segments of bounded size.

Invariant: the segments of a stream, minus their carried prefixes, concatenate to its text. The first `carried`
characters of a segment repeat the end of an unfinished line, so a match across a cut lies whole in the later segment.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from jobs.domain.worker_protocol import Chunk

SEGMENT_CHARACTERS = 8192
# Bounds the offsets, sequences and times stored with a segment.
SEGMENT_CHUNKS = 512
# Longer than a query may be, and than most lines: the words of one line are found together.
CARRY_CHARACTERS = 2048

_FOLD_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Segment:
    stream: str
    first_sequence: int  # of the chunk that completed the first character after the carried ones
    part: int  # numbers the segments that begin in this chunk
    carried: int
    text: str
    # Of each chunk: its start in the text, its sequence and when it was written.
    offsets: Sequence[int]
    sequences: Sequence[int]
    times: Sequence[datetime]

    @property
    def folded(self) -> str | None:
        """None: the text is ASCII, and the database lower-cases it."""
        return None if self.text.isascii() else fold(self.text)


class _AsciiFolding(dict[int, str]):
    """Maps each non-ASCII character to one or two that Postgres treats as letters or digits in every locale.

    Two from U+0800 on, where alphabets have thousands of characters. Characters may share a symbol: search re-checks
    matches in the original text.
    """

    def __missing__(self, code: int) -> str:
        symbol, other = _FOLD_ALPHABET[code % 36], _FOLD_ALPHABET[code // 36 % 36]
        self[code] = folded = chr(code) if code < 0x80 else symbol if code < 0x800 else symbol + other
        return folded


_ascii_folding = _AsciiFolding()


def fold(text: str) -> str:
    """Fold case and map to ASCII. If `a` is part of `b`, then `fold(a)` is part of `fold(b)`."""
    return text.lower() if text.isascii() else text.casefold().translate(_ascii_folding)


def cut_segments(chunks: Sequence[Chunk], carries: Mapping[str, bytes]) -> tuple[list[Segment], dict[str, bytes]]:
    """Return the segments of these chunks (ordered by sequence) and the carry of each stream for the next call."""
    streams = {stream: _StreamCutter(stream, carry) for stream, carry in carries.items()}
    segments: list[Segment] = []
    for chunk in chunks:
        segments += streams[chunk.stream].add(chunk)
    for stream in streams.values():
        segments += stream.flush()
    return segments, {name: stream.carry() for name, stream in streams.items()}


@dataclass(slots=True)
class _ChunkMark:
    offset: int
    sequence: int
    logged_at: datetime


@dataclass(slots=True)
class _StreamCutter:
    """Accumulates the text of one stream and cuts segments off its front."""

    name: str
    initial_carry: bytes
    _text: str = ""
    _carried: int = 0
    _marks: list[_ChunkMark] = field(default_factory=list)
    _part: int = 0
    _decoder: codecs.IncrementalDecoder = field(init=False)

    def __post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = self._decoder.decode(self.initial_carry)
        self._carried = len(self._text)

    def add(self, chunk: Chunk) -> Iterator[Segment]:
        # The decoder keeps half a character until the next chunk. Postgres stores no NUL.
        text = self._decoder.decode(chunk.data).replace("\0", "\ufffd")
        if not text:
            return
        if len(self._marks) >= SEGMENT_CHUNKS:
            yield from self.flush()
        if not self._marks:
            self._part = 0
        self._marks.append(_ChunkMark(len(self._text), chunk.sequence, chunk.logged_at))
        self._text += text
        while len(self._text) > SEGMENT_CHARACTERS:
            end_of_line = self._text.rfind("\n", self._carried, SEGMENT_CHARACTERS) + 1
            yield self._cut(end_of_line or SEGMENT_CHARACTERS)

    def flush(self) -> Iterator[Segment]:
        if len(self._text) > self._carried:
            yield self._cut(len(self._text))

    def carry(self) -> bytes:
        pending, _ = self._decoder.getstate()
        return self._text.encode() + pending

    def _cut(self, end: int) -> Segment:
        text, rest = self._text[:end], self._text[end:]
        inside = [mark for mark in self._marks if mark.offset < end]
        segment = Segment(
            self.name,
            inside[0].sequence,
            self._part,
            self._carried,
            text,
            [mark.offset for mark in inside],
            [mark.sequence for mark in inside],
            [mark.logged_at for mark in inside],
        )
        carry = text[max(text.rfind("\n") + 1, len(text) - CARRY_CHARACTERS) :]
        after = [mark for mark in self._marks if mark.offset >= end]
        if rest and (not after or after[0].offset > end):
            # The chunk continues in the next segment.
            self._part = self._part + 1 if len(inside) == 1 else 1
            after = [_ChunkMark(end, inside[-1].sequence, inside[-1].logged_at), *after]
        else:
            self._part = 0
        moved = end - len(carry)
        self._marks = [_ChunkMark(mark.offset - moved, mark.sequence, mark.logged_at) for mark in after]
        self._text, self._carried = carry + rest, len(carry)
        return segment
