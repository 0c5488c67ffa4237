"""The bytes that a program wrote as text that can be searched, in segments of bounded size.

Invariant: the segments of a stream without their carried parts are its text, and what lies across a cut is found whole
in the later segment, as its first `carried` characters repeat the end of an unfinished line.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from jobs.protocol import Chunk

SEGMENT_CHARACTERS = 8192
# Each chunk of a segment is noted with it: more notes than text would be a poor deal.
SEGMENT_CHUNKS = 512
# More than what may be searched for, and than most lines have: words of one line are found together.
CARRY_CHARACTERS = 2048

_SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Segment:
    stream: str
    first_sequence: int  # of the chunk in which the first character that is not carried was completed
    part: int  # which segment that begins in this chunk it is
    carried: int
    text: str
    # Where each chunk begins in the text, which number it has and when it was written.
    offsets: Sequence[int]
    sequences: Sequence[int]
    times: Sequence[datetime]

    @property
    def folded(self) -> str | None:
        """None: lower-casing its ASCII, which the database can do, is all."""
        return None if self.text.isascii() else fold(self.text)


class _Symbols(dict[int, str]):
    """For each character outside of ASCII one or two that are letters or digits to Postgres, whatever its locale.

    Two where an alphabet has thousands. Different ones may share a symbol: whoever finds something looks at the text.
    """

    def __missing__(self, code: int) -> str:
        symbol, other = _SYMBOLS[code % 36], _SYMBOLS[code // 36 % 36]
        self[code] = shown = chr(code) if code < 0x80 else symbol if code < 0x800 else symbol + other
        return shown


_symbols = _Symbols()


def fold(text: str) -> str:
    """Without case, and in ASCII only; what is part of a text is part of the folded text when both are folded."""
    return text.lower() if text.isascii() else text.casefold().translate(_symbols)


def cut_segments(chunks: Sequence[Chunk], carries: Mapping[str, bytes]) -> tuple[list[Segment], dict[str, bytes]]:
    """What to store for these chunks, in order of sequence, and what to carry over to those that follow them."""
    streams = {stream: _Stream(stream, carry) for stream, carry in carries.items()}
    segments: list[Segment] = []
    for chunk in chunks:
        segments += streams[chunk.stream].add(chunk)
    for stream in streams.values():
        segments += stream.flush()
    return segments, {name: stream.carry() for name, stream in streams.items()}


@dataclass(slots=True)
class _Mark:
    offset: int
    sequence: int
    logged_at: datetime


@dataclass(slots=True)
class _Stream:
    """The end of a stream's text that is in no segment yet, after what is carried into the next one."""

    name: str
    carried_before: bytes
    _text: str = ""
    _carried: int = 0
    _marks: list[_Mark] = field(default_factory=list)
    _part: int = 0
    _decoder: codecs.IncrementalDecoder = field(init=False)

    def __post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = self._decoder.decode(self.carried_before)
        self._carried = len(self._text)

    def add(self, chunk: Chunk) -> Iterator[Segment]:
        # Half a character at the end of a chunk waits for the other half. Postgres stores no NUL.
        text = self._decoder.decode(chunk.data).replace("\0", "\ufffd")
        if not text:
            return
        if len(self._marks) >= SEGMENT_CHUNKS:
            yield from self.flush()
        if not self._marks:
            self._part = 0
        self._marks.append(_Mark(len(self._text), chunk.sequence, chunk.logged_at))
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
            # The chunk goes on in the next segment.
            self._part = self._part + 1 if len(inside) == 1 else 1
            after = [_Mark(end, inside[-1].sequence, inside[-1].logged_at), *after]
        else:
            self._part = 0
        moved = end - len(carry)
        self._marks = [_Mark(mark.offset - moved, mark.sequence, mark.logged_at) for mark in after]
        self._text, self._carried = carry + rest, len(carry)
        return segment
