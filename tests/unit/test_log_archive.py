"""An archived log comes back exactly as it was, or not at all."""

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

from jobs.errors import ArchivedLogUnreadable
from jobs.log_archive import PIECE_BYTES, Heading, check_member, read_member, write_member
from jobs.protocol import Chunk

AT = datetime(2026, 11, 16, 3, 4, 5, 678901, tzinfo=UTC)
WHOSE = uuid4()

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


def member(logged: list[Chunk], *, execution_id: UUID = WHOSE, said: int | None = None) -> bytes:
    into = io.BytesIO()
    heading = Heading(execution_id, 1, len(logged) if said is None else said, truncated=False)
    assert write_member(heading, logged, into) == len(logged)
    return into.getvalue()


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def read(data: bytes, *, size: int = 4096) -> list[Chunk]:
    return list(read_member(pieces(data, size), execution_id=WHOSE, attempt=1))


@given(chunks, st.integers(1, 100))
def test_what_was_written_is_read_however_it_is_cut(logged: list[Chunk], size: int) -> None:
    assert read(member(logged), size=size) == logged


@given(st.lists(chunks, max_size=4))
def test_members_one_after_the_other_are_one_readable_file_of_lines(logs: list[list[Chunk]]) -> None:
    members = [member(logged) for logged in logs]
    lines = [json.loads(line) for line in gzip.decompress(b"".join(members)).split(b"\n") if line]
    assert sum("chunks" in line for line in lines) == len(logs)
    assert [line["sequence"] for line in lines if "sequence" in line] == [c.sequence for log in logs for c in log]


@given(chunks.filter(bool), st.data())
def test_an_end_that_comes_too_soon_is_an_error(logged: list[Chunk], data: st.DataObject) -> None:
    whole = member(logged)
    check_member(pieces(whole, 9))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ArchivedLogUnreadable):
        read(whole[:cut])
    with pytest.raises(ArchivedLogUnreadable):
        check_member([whole[:cut]])


@given(chunks.filter(bool), st.data())
def test_a_damaged_byte_is_an_error_unless_it_says_nothing(logged: list[Chunk], data: st.DataObject) -> None:
    whole = member(logged)
    # The ten bytes before say no more than that it is gzip.
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
        member([], said=1),
        member([Chunk(0, "stdout", AT, b"x")], said=0),
        member([]) + b"more",
        member([]) + member([]),
    ],
)
def test_what_is_not_this_log_is_refused(wrong: bytes) -> None:
    for size in (1, 4096):
        with pytest.raises(ArchivedLogUnreadable):
            read(wrong, size=size)


def test_the_same_log_is_the_same_bytes_and_says_what_it_is() -> None:
    logged = [Chunk(0, "stdout", AT, "grün\n".encode()), Chunk(1, "stderr", AT, b"\xff\0")]
    assert member(logged) == member(logged)
    heading, *lines = (json.loads(line) for line in gzip.decompress(member(logged)).splitlines())
    assert heading == {"execution_id": str(WHOSE), "attempt": 1, "chunks": 2, "truncated": False}
    assert lines == [
        {"sequence": 0, "at": "2026-11-16T03:04:05.678901+00:00", "stream": "stdout", "text": "grün\n"},
        {"sequence": 1, "at": "2026-11-16T03:04:05.678901+00:00", "stream": "stderr", "base64": "/wA="},
    ]


def test_little_of_a_log_is_in_memory_however_well_it_compresses() -> None:
    whole = member([Chunk(n, "stdout", AT, b"a" * PIECE_BYTES) for n in range(100)])
    assert len(whole) < PIECE_BYTES
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_member([whole], execution_id=WHOSE, attempt=1)) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * PIECE_BYTES
