"""Reads logs whose chunks were dropped from Postgres from the archive.

A log is fetched and verified as a whole before its first chunk is returned: a response that has begun cannot fail, and
no request to the object store waits for a slow reader.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO
from uuid import UUID

from jobs.db import sql
from jobs.db.transactions import release_connection
from jobs.domain.worker_protocol import Chunk
from jobs.logs.archive_format import PIECE_BYTES, check_member, read_member
from jobs.storage import s3

STATEMENT_TIMEOUT_SECONDS = 10.0
# Larger logs are spooled to an unnamed file: hundreds may be read at once.
MEMORY_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class _ArchivedLog:
    pack_id: UUID
    offset: int
    length: int
    last: int
    in_postgres: bool


def read_archived(execution_id: UUID, attempt: int, *, after: int = -1, stream: str | None = None) -> Iterator[Chunk]:
    """Yield the archived chunks after a sequence. Call it once Postgres has none left.

    In this order no chunk is missed: chunks are dropped only after their place in the archive is committed, so a reader
    who finds none in Postgres, even in the middle of a log, finds them in the archive.
    """
    found = sql.fetch(
        "find_archived_logs",
        {"execution_id": execution_id, "attempt": attempt},
        _ArchivedLog,
        timeout_seconds=STATEMENT_TIMEOUT_SECONDS,
    )
    release_connection()
    # While its chunks are still in Postgres, the caller has read them: anything later is of the other stream.
    for log in (each for each in found if each.last > after and not each.in_postgres):
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as member:
            for piece in s3.read_log_pack(log.pack_id, log.offset, log.length):
                member.write(piece)
            check_member(_read_from_start(member))
            for chunk in read_member(_read_from_start(member), execution_id=execution_id, attempt=attempt):
                if chunk.sequence > after and stream in (None, chunk.stream):
                    yield chunk


def _read_from_start(member: IO[bytes]) -> Iterator[bytes]:
    member.seek(0)
    while piece := member.read(PIECE_BYTES):
        yield piece
