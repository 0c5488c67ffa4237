"""What the archive holds of logs whose chunks are no longer in Postgres.

A log is fetched and checked as a whole before any of it is given out: whoever is answered has all of it to come,
however slowly they read, and no request to the object store waits for them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO
from uuid import UUID

from jobs import sql, storage
from jobs.log_archive import PIECE_BYTES, check_member, read_member
from jobs.protocol import Chunk
from jobs.services.database import give_back

SECONDS = 10.0
# So much of a log as it is archived is in memory; a larger one is a file without a name.
MEMORY_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class _Archived:
    pack_id: UUID
    offset: int
    length: int
    last: int
    in_postgres: bool


def read_archived(execution_id: UUID, attempt: int, *, after: int = -1, stream: str | None = None) -> Iterator[Chunk]:
    """What follows a sequence, to be asked for once Postgres has nothing that does.

    In this order nothing is missed: chunks go only after their place in the archive was committed, so that whoever
    finds none of them, be it in the middle of a log, finds that place afterwards.
    """
    found = sql.fetch("find_archived", {"execution_id": execution_id, "attempt": attempt}, _Archived, within=SECONDS)
    give_back()
    give_back()
    # What is still in Postgres does not come back to it: all that follows is of the other stream.
    for log in (each for each in found if each.last > after and not each.in_postgres):
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as member:
            for piece in storage.read_log_pack(log.pack_id, log.offset, log.length):
                member.write(piece)
            check_member(_again(member))
            for chunk in read_member(_again(member), execution_id=execution_id, attempt=attempt):
                if chunk.sequence > after and stream in (None, chunk.stream):
                    yield chunk


def _again(member: IO[bytes]) -> Iterator[bytes]:
    member.seek(0)
    while piece := member.read(PIECE_BYTES):
        yield piece
