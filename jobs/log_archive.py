"""The form of an archived log: a gzip member of JSON lines, the first of which says whose log it is and how long.

Members follow each other in an object, so that zcat reads all of it, and each can be read alone. Reading gives exactly
what was written, or fails: an end that comes too soon is an error, never a shorter log.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO
from uuid import UUID

from jobs.errors import ArchivedLogUnreadable
from jobs.protocol import Chunk

# As small as the next levels make it, to a tenth, in a third of their time.
LEVEL = 3
PIECE_BYTES = 256 * 1024
GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Heading:
    execution_id: UUID
    attempt: int
    chunks: int
    truncated: bool  # more was written than a log may hold


def write_member(heading: Heading, chunks: Iterable[Chunk], into: IO[bytes]) -> int:
    """Returns how many chunks there were: others than the heading says make a member that cannot be read."""
    written = 0
    # Without a time, so that the same log is always the same bytes.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=into, mtime=0) as member:
        member.write(_line(_describe(heading)))
        for chunk in chunks:
            member.write(_line(_describe_chunk(chunk)))
            written += 1
    return written


def check_member(pieces: Iterable[bytes]) -> None:
    """Raises unless they are one undamaged member, from its first byte to its last."""
    try:
        for _ in _unzip(pieces):
            pass
    except zlib.error as error:
        raise ArchivedLogUnreadable from error


def read_member(pieces: Iterable[bytes], *, execution_id: UUID, attempt: int) -> Iterator[Chunk]:
    lines = _split(_unzip(pieces))
    try:
        heading = json.loads(next(lines, b"{}"))
        if (heading.get("execution_id"), heading.get("attempt")) != (str(execution_id), attempt):
            raise ArchivedLogUnreadable
        read = 0
        for line in lines:
            yield _parse_chunk(json.loads(line))
            read += 1
        if read != heading["chunks"]:
            raise ArchivedLogUnreadable
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchivedLogUnreadable from error


def _describe(heading: Heading) -> dict[str, object]:
    return {
        "execution_id": str(heading.execution_id),
        "attempt": heading.attempt,
        "chunks": heading.chunks,
        "truncated": heading.truncated,
    }


def _describe_chunk(chunk: Chunk) -> dict[str, object]:
    said: dict[str, object] = {
        "sequence": chunk.sequence,
        "at": chunk.logged_at.isoformat(),
        "stream": chunk.stream,
    }
    try:
        return said | {"text": chunk.data.decode()}
    except UnicodeDecodeError:
        return said | {"base64": base64.b64encode(chunk.data).decode()}


def _parse_chunk(said: dict[str, str]) -> Chunk:
    data = said["text"].encode() if "text" in said else base64.b64decode(said["base64"], validate=True)
    return Chunk(int(said["sequence"]), said["stream"], datetime.fromisoformat(said["at"]), data)


def _line(said: dict[str, object]) -> bytes:
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _unzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """In bounded pieces, however well they were compressed."""
    unzip = zlib.decompressobj(GZIP)
    for piece in pieces:
        rest = piece
        while rest and not unzip.eof:
            yield unzip.decompress(rest, PIECE_BYTES)
            rest = unzip.unconsumed_tail
        if rest or unzip.unused_data:
            raise ArchivedLogUnreadable
    if not unzip.eof:
        raise ArchivedLogUnreadable


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts)
            parts = [other]
    if any(parts):
        raise ArchivedLogUnreadable
