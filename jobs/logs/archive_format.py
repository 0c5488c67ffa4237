"""The format of an archived log: a gzip member of JSON lines, a header and then the chunks.

An object concatenates members: zcat reads all of it, and each member can be read alone. Reading returns exactly what
was written or fails: a truncated member is an error, never a shorter log.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import IO
from uuid import UUID

from jobs.domain.errors import ArchivedLogUnreadable
from jobs.domain.worker_protocol import Chunk

# Within a tenth of the size that the next levels reach, in a third of their time.
COMPRESSION_LEVEL = 3
PIECE_BYTES = 256 * 1024
GZIP_WBITS = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class MemberHeader:
    execution_id: UUID
    attempt: int
    chunks: int
    truncated: bool  # the log exceeded its size limit


def write_member(header: MemberHeader, chunks: Iterable[Chunk], into: IO[bytes]) -> int:
    """Write a member and return its number of chunks; unless it equals the header's, the member is unreadable."""
    written = 0
    # mtime=0: the same log always gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=into, mtime=0) as member:
        member.write(_encode_line(asdict(header) | {"execution_id": str(header.execution_id)}))
        for chunk in chunks:
            member.write(_encode_line(_encode_chunk(chunk)))
            written += 1
    return written


def check_member(pieces: Iterable[bytes]) -> None:
    """Raise ArchivedLogUnreadable unless the pieces are exactly one undamaged member."""
    try:
        for _ in _decompress(pieces):
            pass
    except zlib.error as error:
        raise ArchivedLogUnreadable from error


def read_member(pieces: Iterable[bytes], *, execution_id: UUID, attempt: int) -> Iterator[Chunk]:
    lines = _split_lines(_decompress(pieces))
    try:
        header = json.loads(next(lines, b"{}"))
        if (header.get("execution_id"), header.get("attempt")) != (str(execution_id), attempt):
            raise ArchivedLogUnreadable
        read = 0
        for line in lines:
            yield _decode_chunk(json.loads(line))
            read += 1
        if read != header["chunks"]:
            raise ArchivedLogUnreadable
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchivedLogUnreadable from error


def _encode_chunk(chunk: Chunk) -> dict[str, object]:
    fields: dict[str, object] = {
        "sequence": chunk.sequence,
        "at": chunk.logged_at.isoformat(),
        "stream": chunk.stream,
    }
    try:
        return fields | {"text": chunk.data.decode()}
    except UnicodeDecodeError:
        return fields | {"base64": base64.b64encode(chunk.data).decode()}


def _decode_chunk(fields: dict[str, str]) -> Chunk:
    data = fields["text"].encode() if "text" in fields else base64.b64decode(fields["base64"], validate=True)
    return Chunk(int(fields["sequence"]), fields["stream"], datetime.fromisoformat(fields["at"]), data)


def _encode_line(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decompress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of bounded size, however high the compression ratio."""
    unzip = zlib.decompressobj(GZIP_WBITS)
    for piece in pieces:
        rest = piece
        while rest and not unzip.eof:
            yield unzip.decompress(rest, PIECE_BYTES)
            rest = unzip.unconsumed_tail
        if rest or unzip.unused_data:
            raise ArchivedLogUnreadable
    if not unzip.eof:
        raise ArchivedLogUnreadable


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts)
            parts = [other]
    if any(parts):
        raise ArchivedLogUnreadable
