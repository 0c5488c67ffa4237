"""Arguments are parsed to values or refused with a message that quotes them."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_cli.argument_parsing import (
    Dependency,
    is_uuid,
    parse_assignment,
    parse_dependency,
    parse_duration,
    parse_instant,
    parse_timezone,
    safe_output_path,
)
from punctual_client.errors import UsageError


@pytest.mark.parametrize(
    ("word", "seconds"),
    [("30s", 30), ("5m", 300), ("1h", 3600), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("90", 90)],
)
def test_a_duration_is_whole_seconds(word: str, seconds: int) -> None:
    assert parse_duration(word) == seconds


@pytest.mark.parametrize(
    "word", ["", "0", "0s", "-5s", "1.5h", "5 m", "m", "3x", "30s5m", "٣s", "9" * 5000, "9" * 5000 + "w", "1h "]
)
def test_an_invalid_duration_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration(word)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_the_parts_of_a_duration_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == expected


def test_an_instant_with_an_offset_is_itself_whatever_the_zone() -> None:
    assert parse_instant("2030-01-31T09:00+01:00", ZoneInfo("Asia/Tokyo")) == "2030-01-31T08:00:00Z"


def test_an_instant_without_an_offset_is_in_the_zone() -> None:
    assert parse_instant("2030-07-31T09:00", ZoneInfo("Europe/Paris")) == "2030-07-31T07:00:00Z"


@pytest.mark.parametrize("word", ["tomorrow", "", "2030-13-01", "0001-01-01T00:00+23:00"])
def test_an_invalid_instant_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_instant(word, None)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "", "/etc/localtime", "Europe"])
def test_an_invalid_time_zone_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="time zone"):
        parse_timezone(name)


def test_a_dependency_waits_for_success_by_default() -> None:
    assert parse_dependency("nightly") == Dependency("nightly", "success")
    assert parse_dependency("nightly:failure") == Dependency("nightly", "failure")


@pytest.mark.parametrize("word", ["nightly:sucess", ":failure", "nightly:"])
def test_an_unknown_condition_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="success, failure or completion"):
        parse_dependency(word)


def test_a_variable_may_hold_an_equals_sign_or_nothing() -> None:
    assert parse_assignment("A=b=c") == ("A", "b=c")
    assert parse_assignment("A=") == ("A", "")


@pytest.mark.parametrize("word", ["A", "=b", ""])
def test_an_invalid_variable_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_assignment(word)


def test_ids_are_distinguished_from_names() -> None:
    assert is_uuid("0198c0de-0000-7000-8000-000000000001")
    assert not is_uuid("nightly-report")


@pytest.mark.parametrize("name", ["report.html", "a/b/c.txt", ".hidden", "...", "naïve.txt", "a b"])
def test_an_ordinary_output_keeps_its_name(name: str) -> None:
    assert str(safe_output_path(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a\\..\\x",
        "a\nb",
        "a\0b",
        "\x1b[2J",
        "x" * 256,
        "\udcff",
    ],
)
def test_a_hostile_output_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="could lead out of the directory"):
        safe_output_path(name)
