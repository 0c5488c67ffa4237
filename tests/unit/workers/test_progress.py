"""How far a run says it is, read from bytes that may be anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.protocol import MAX_PROGRESS_LENGTH, Progress
from workers.progress import MAX_LINE_BYTES, MAX_LINES, ProgressReader, parse_progress


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"42.5 reading", Progress(42.5, "reading")),
        (b"0", Progress(0, "")),
        (b"100", Progress(100, "")),
        (b"7%", Progress(7, "")),
        (b"7 % of it", Progress(7, "of it")),
        (b"- still looking", Progress(None, "still looking")),
        (b"  12\tb \r", Progress(12, "b")),
        ("50 größer".encode(), Progress(50, "größer")),
        (b"50 \xff", Progress(50, "\ufffd")),
        (b"50 a\x1b[2Jb\x00c", Progress(50, "a\ufffd[2Jb\ufffdc")),
        ("50 a\u202eb\u2028c".encode(), Progress(50, "a\ufffdb\ufffdc")),
        (b"5 " + b"x" * 2000, Progress(5, "x" * MAX_PROGRESS_LENGTH)),
    ],
)
def test_a_line(line: bytes, said: Progress) -> None:
    assert parse_progress(line) == said


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"-", b"reading", b"101", b"100.1", b"-5", b"1e2", b"nan", b"inf", b"50x", b"5,5 x", b"0x10", b"1."),
        *("\u0665".encode(), b"+5", b"50-", b"\xff\xfe", b"9999999999"),
    ],
)  # fmt: skip
def test_nonsense_is_nothing(line: bytes) -> None:
    assert parse_progress(line) is None


def read(*pieces: bytes, close: bool = True) -> list[Progress]:
    said: list[Progress] = []
    reader = ProgressReader(said.append)
    for piece in pieces:
        reader.feed(piece)
    if close:
        reader.close()
    return said


def test_the_last_line_that_is_one_counts() -> None:
    assert read(b"1 a\n2 b\nnonsense\n") == [Progress(2, "b")]
    assert read(b"1 a\n", b"nonsense\n", b"3 c") == [Progress(1, "a"), Progress(3, "c")]


def test_a_line_may_come_in_pieces_and_counts_once_it_is_complete() -> None:
    assert read(b"4", b"2 re", b"ading", close=False) == []
    assert read(b"4", b"2 re", b"ading\n1", close=False) == [Progress(42, "reading")]


def test_an_endless_line_takes_no_memory_and_its_beginning_counts() -> None:
    said: list[Progress] = []
    reader = ProgressReader(said.append)
    for _ in range(100):
        reader.feed(b"5" + b" " * 65_535)
        assert len(reader._rest) <= MAX_LINE_BYTES
    reader.close()
    assert said == [Progress(5, "")]


def test_of_many_lines_at_once_only_the_last_are_looked_at() -> None:
    assert read(b"1 early\n" + b"\n" * MAX_LINES) == []
    assert read(b"\n" * 65_000 + b"1 late\n" + b"\n" * (MAX_LINES - 2)) == [Progress(1, "late")]


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_any_bytes_however_cut_are_read_without_error_and_what_comes_out_is_plain(pieces: list[bytes]) -> None:
    for said in read(*pieces):
        assert said.percent is None or 0 <= said.percent <= 100
        assert (said.message.isprintable(), len(said.message) <= MAX_PROGRESS_LENGTH) == (True, True)
