"""Archived logs are read back exactly as written, or reading fails."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import ArchivedLogUnreadable
from jobs.domain.worker_protocol import Chunk
from jobs.logs.archive_format import PIECE_BYTES, MemberHeader, check_member, read_member, write_member

AT = datetime(2026, 11, 16, 3, 4, 5, 678901, tzinfo=UTC)
EXECUTION_ID = uuid4()

chunks = st.lists(
    st.builds(
        Chunk,
        st.integers(0, 2**31 - 1),
        st.sampled_from(["stdout", "stderr"]),
        st.datetimes(timezones=st.just(UTC)),
        st.binary() | st.text().map(str.encode),
    ),
    max_size=8,
)


def member(logged: list[Chunk], *, execution_id: UUID = EXECUTION_ID, header_chunks: int | None = None) -> bytes:
    into = io.BytesIO()
    header = MemberHeader(execution_id, 1, len(logged) if header_chunks is None else header_chunks, truncated=False)
    assert write_member(header, logged, into) == len(logged)
    return into.getvalue()


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def read(data: bytes, *, size: int = 4096) -> list[Chunk]:
    return list(read_member(pieces(data, size), execution_id=EXECUTION_ID, attempt=1))


@given(chunks, st.integers(1, 100))
def test_written_chunks_are_read_back_from_pieces_of_any_size(logged: list[Chunk], size: int) -> None:
    assert read(member(logged), size=size) == logged


@given(st.lists(chunks, max_size=4))
def test_concatenated_members_are_one_gzip_file_of_json_lines(logs: list[list[Chunk]]) -> None:
    members = [member(logged) for logged in logs]
    lines = [json.loads(line) for line in gzip.decompress(b"".join(members)).split(b"\n") if line]
    assert sum("chunks" in line for line in lines) == len(logs)
    assert [line["sequence"] for line in lines if "sequence" in line] == [c.sequence for log in logs for c in log]


@given(chunks.filter(bool), st.data())
def test_truncated_member_is_an_error(logged: list[Chunk], data: st.DataObject) -> None:
    whole = member(logged)
    check_member(pieces(whole, 9))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ArchivedLogUnreadable):
        read(whole[:cut])
    with pytest.raises(ArchivedLogUnreadable):
        check_member([whole[:cut]])


@given(chunks.filter(bool), st.data())
def test_damaged_byte_is_an_error_or_harmless(logged: list[Chunk], data: st.DataObject) -> None:
    whole = member(logged)
    # The first ten bytes are the gzip header.
    place = data.draw(st.integers(10, len(whole) - 1))
    bad = bytes([*whole[:place], whole[place] ^ data.draw(st.integers(1, 255)), *whole[place + 1 :]])
    with suppress(ArchivedLogUnreadable):
        assert read(bad) == logged


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"no gzip at all",
        gzip.compress(b""),
        gzip.compress(b"{}\n"),
        gzip.compress(b"[]\n"),
        member([], execution_id=uuid4()),
        member([], header_chunks=1),
        member([Chunk(0, "stdout", AT, b"x")], header_chunks=0),
        member([]) + b"more",
        member([]) + member([]),
    ],
)
def test_other_data_than_this_log_is_refused(wrong: bytes) -> None:
    for size in (1, 4096):
        with pytest.raises(ArchivedLogUnreadable):
            read(wrong, size=size)


def test_member_is_deterministic_and_has_a_header() -> None:
    logged = [Chunk(0, "stdout", AT, "grün\n".encode()), Chunk(1, "stderr", AT, b"\xff\0")]
    assert member(logged) == member(logged)
    header, *lines = (json.loads(line) for line in gzip.decompress(member(logged)).splitlines())
    assert header == {"execution_id": str(EXECUTION_ID), "attempt": 1, "chunks": 2, "truncated": False}
    assert lines == [
        {"sequence": 0, "at": "2026-11-16T03:04:05.678901+00:00", "stream": "stdout", "text": "grün\n"},
        {"sequence": 1, "at": "2026-11-16T03:04:05.678901+00:00", "stream": "stderr", "base64": "/wA="},
    ]


def test_reading_a_highly_compressed_log_uses_little_memory() -> None:
    whole = member([Chunk(n, "stdout", AT, b"a" * PIECE_BYTES) for n in range(100)])
    assert len(whole) < PIECE_BYTES
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_member([whole], execution_id=EXECUTION_ID, attempt=1)) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * PIECE_BYTES
