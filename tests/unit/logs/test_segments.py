"""Segments lose no text, whatever the bytes and chunks, and each match lies in exactly one segment."""

from __future__ import annotations

import codecs
import re
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.domain.worker_protocol import Chunk
from jobs.logs.segments import CARRY_CHARACTERS, SEGMENT_CHARACTERS, SEGMENT_CHUNKS, Segment, cut_segments, fold

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOTHING = {"stdout": b"", "stderr": b""}
# Long lines, short ones, other alphabets, bytes that are no text.
pieces = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(str.encode),
    st.sampled_from([b"\n", b"ab" * 200, b"x" * 5000 + b"\n", "жук中文 ".encode() * 90, b"\xd0", b"\xbf", b"\0\0"]),
)
written = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), pieces), max_size=25)


def chunks_of(pieces: list[tuple[str, bytes]], first: int = 0) -> list[Chunk]:
    return [
        Chunk(number, stream, NOON + timedelta(seconds=number), data)
        for number, (stream, data) in enumerate(pieces, first)
    ]


def indexed_in_steps(chunks: list[Chunk], stops: set[int]) -> list[Segment]:
    segments, carries, start = [], NOTHING, 0
    for stop in sorted({stop for stop in stops if stop < len(chunks)} | {len(chunks)}):
        new, carries = cut_segments(chunks[start:stop], carries)
        segments += new
        start = stop
    return segments


def text_of(chunks: list[Chunk], stream: str) -> str:
    """Return the text without half a character at its end."""
    whole = b"".join(chunk.data for chunk in chunks if chunk.stream == stream)
    return codecs.getincrementaldecoder("utf-8")("replace").decode(whole).replace("\0", "\ufffd")


def occurrences(text: str, wanted: str) -> list[int]:
    return [found.start() for found in re.finditer(f"(?={re.escape(wanted)})", text)]


@given(written, st.sets(st.integers(1, 24)))
def test_segments_without_carried_parts_concatenate_to_the_text(
    pieces: list[tuple[str, bytes]], stops: set[int]
) -> None:
    chunks = chunks_of(pieces)
    segments = indexed_in_steps(chunks, stops)
    for stream in NOTHING:
        joined = "".join(each.text[each.carried :] for each in segments if each.stream == stream)
        assert joined == text_of(chunks, stream)
    keys = [(each.first_sequence, each.part) for each in segments]
    assert len(keys) == len(set(keys))
    for each in segments:
        assert len(each.text) <= SEGMENT_CHARACTERS
        assert 0 <= each.carried <= min(CARRY_CHARACTERS, len(each.text) - 1)
        assert "\n" not in each.text[: each.carried]
        assert each.offsets[0] == each.carried
        assert each.sequences[0] == each.first_sequence
        assert list(each.offsets) == sorted(set(each.offsets))
        assert len(each.offsets) == len(each.sequences) == len(each.times) <= SEGMENT_CHUNKS


@given(written, st.sets(st.integers(1, 24)))
@example([("stdout", b"".join(b"%05d " % n for n in range(3000)))], set())
@settings(max_examples=60, deadline=None)  # the longest lines take a busy machine a while
def test_text_of_a_line_is_found_once(pieces: list[tuple[str, bytes]], stops: set[int]) -> None:
    chunks = chunks_of(pieces)
    segments = [each for each in indexed_in_steps(chunks, stops) if each.stream == "stdout"]
    lines = [line for line in text_of(chunks, "stdout").split("\n") if line]
    if not lines:
        return
    for line in {lines[0], lines[-1], max(lines, key=len)}:
        for start, length in ((0, 3), (len(line) // 2, 256), (max(0, len(line) - 30), 30), (8100, 256)):
            wanted = line[start : start + length]
            if wanted:
                expected = sum(len(occurrences(each, wanted)) for each in lines)
                found = sum(
                    1 for each in segments for at in occurrences(each.text, wanted) if at + len(wanted) > each.carried
                )
                assert found == expected


def test_segments_map_characters_to_chunks() -> None:
    pieces = [("stdout", b"one\ntwo"), ("stderr", b"else"), ("stdout", b" and "), ("stdout", b"more\n")]
    (first, other), carries = cut_segments(chunks_of(pieces), NOTHING)
    assert (first.text, first.offsets, first.sequences) == ("one\ntwo and more\n", [0, 7, 12], [0, 2, 3])
    assert first.times == [NOON, NOON + timedelta(seconds=2), NOON + timedelta(seconds=3)]
    assert (other.stream, other.text, other.first_sequence) == ("stderr", "else", 1)
    assert carries == {"stdout": b"", "stderr": b"else"}
    (third,), _ = cut_segments(chunks_of([("stderr", b" where\n")], 4), carries)
    assert (third.text, third.carried, third.offsets, third.sequences) == ("else where\n", 4, [4], [4])


def test_segments_end_at_line_breaks_if_possible() -> None:
    lines = b"".join(b"%05d some words of a line\n" % number for number in range(2000))
    segments, carries = cut_segments(chunks_of([("stdout", lines)]), NOTHING)
    assert all(each.text.endswith("\n") and each.carried == 0 for each in segments)
    assert [each.part for each in segments] == list(range(len(segments)))
    assert min(len(each.text) for each in segments[:-1]) > SEGMENT_CHARACTERS - 100
    assert carries["stdout"] == b""


def test_a_character_in_two_halves_is_one() -> None:
    letter = "ж".encode()
    segments, carries = cut_segments(chunks_of([("stdout", b"a" + letter[:1])]), NOTHING)
    assert (segments[0].text, carries["stdout"]) == ("a", b"a" + letter[:1])
    segments, carries = cut_segments(chunks_of([("stdout", letter[1:] + b"b")], 1), carries)
    assert (segments[0].text, segments[0].carried) == ("a" + "ж" + "b", 1)


def test_many_tiny_chunks_are_several_segments() -> None:
    segments, _ = cut_segments(chunks_of([("stdout", b"x")] * (SEGMENT_CHUNKS + 3)), NOTHING)
    assert [len(each.offsets) for each in segments] == [SEGMENT_CHUNKS, 3]


@given(st.text(), st.text(), st.text())
def test_folding_preserves_substrings(before: str, part: str, after: str) -> None:
    folded = fold(before + part + after)
    assert folded.isascii()
    assert fold(part) in folded
    assert fold(part.upper()) == fold(part.upper().casefold())


def test_non_ascii_letters_fold_to_ascii_letters_and_digits() -> None:
    assert fold("ПРИВЕТ") == fold("привет")
    assert len(fold("привет")) == 6
    assert len(fold("中文日")) == 6
    for text in ("привет", "中文日", "שלום", "παράδειγμα"):
        assert fold(text).isalnum()
    assert fold("Straße") == "strasse"
    assert len({fold(chr(code)) for code in range(0x430, 0x450)}) == 32, "an alphabet stays one"
    assert fold("Plain ASCII, 100%") == "plain ascii, 100%"
