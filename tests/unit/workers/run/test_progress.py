"""Progress parsing from arbitrary bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.worker_protocol import MAX_PROGRESS_LENGTH, Progress
from workers.run.progress import MAX_LINE_BYTES, MAX_LINES, ProgressReader, parse_progress


@pytest.mark.parametrize(
    ("line", "progress"),
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
def test_progress_line_is_parsed(line: bytes, progress: Progress) -> None:
    assert parse_progress(line) == progress


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"-", b"reading", b"101", b"100.1", b"-5", b"1e2", b"nan", b"inf", b"50x", b"5,5 x", b"0x10", b"1."),
        *("\u0665".encode(), b"+5", b"50-", b"\xff\xfe", b"9999999999"),
    ],
)  # fmt: skip
def test_invalid_line_is_ignored(line: bytes) -> None:
    assert parse_progress(line) is None


def read(*pieces: bytes, close: bool = True) -> list[Progress]:
    reports: list[Progress] = []
    reader = ProgressReader(reports.append)
    for piece in pieces:
        reader.feed(piece)
    if close:
        reader.close()
    return reports


def test_last_valid_line_counts() -> None:
    assert read(b"1 a\n2 b\nnonsense\n") == [Progress(2, "b")]
    assert read(b"1 a\n", b"nonsense\n", b"3 c") == [Progress(1, "a"), Progress(3, "c")]


def test_split_line_counts_once_complete() -> None:
    assert read(b"4", b"2 re", b"ading", close=False) == []
    assert read(b"4", b"2 re", b"ading\n1", close=False) == [Progress(42, "reading")]


def test_endless_line_is_bounded_and_its_start_counts() -> None:
    reports: list[Progress] = []
    reader = ProgressReader(reports.append)
    for _ in range(100):
        reader.feed(b"5" + b" " * 65_535)
        assert len(reader._rest) <= MAX_LINE_BYTES
    reader.close()
    assert reports == [Progress(5, "")]


def test_only_last_lines_of_a_read_are_parsed() -> None:
    assert read(b"1 early\n" + b"\n" * MAX_LINES) == []
    assert read(b"\n" * 65_000 + b"1 late\n" + b"\n" * (MAX_LINES - 2)) == [Progress(1, "late")]


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_arbitrary_bytes_give_plain_progress(pieces: list[bytes]) -> None:
    for progress in read(*pieces):
        assert progress.percent is None or 0 <= progress.percent <= 100
        assert (progress.message.isprintable(), len(progress.message) <= MAX_PROGRESS_LENGTH) == (True, True)
