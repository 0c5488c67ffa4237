"""The H field: fixed for a schedule, spread over many, independent for each field."""

from collections import Counter
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence import resolve_hashed
from jobs.domain.recurrence.cron import parse_wall_times
from tests.unit.domain.recurrence.recurrences import EPOCH, fast, parse

KEYS = [uuid5(UUID(int=0), str(number)) for number in range(10_000)]


@pytest.mark.parametrize(
    ("expression", "position", "values"),
    [
        ("H * * * *", 0, range(60)),
        ("0 H * * *", 1, range(24)),
        ("0 0 H * *", 2, range(1, 29)),
        ("0 0 1 H *", 3, range(1, 13)),
        ("0 0 * * H", 4, range(7)),
        ("H(0-29) * * * *", 0, range(30)),
        ("0 H(22-23) * * *", 1, range(22, 24)),
    ],
)
def test_spreads_evenly(expression: str, position: int, values: range) -> None:
    counts = Counter(int(resolve_hashed(expression, key).split()[position]) for key in KEYS)
    assert set(counts) == set(values)
    expected = len(KEYS) / len(values)
    # Chi-squared: its mean is the degrees of freedom; six standard deviations above it is no coincidence.
    statistic = sum((counts[value] - expected) ** 2 / expected for value in values)
    freedom = len(values) - 1
    assert statistic < freedom + 6 * (2 * freedom) ** 0.5


def test_fields_are_independent() -> None:
    pairs = Counter(tuple(resolve_hashed("H(0-5) H(0-5) * * *", key).split()[:2]) for key in KEYS)
    assert len(pairs) == 36
    assert min(pairs.values()) > len(KEYS) / 36 * 0.7


@pytest.mark.parametrize(
    ("expression", "low", "high", "step"),
    [("H/15 * * * *", 0, 59, 15), ("H(0-29)/10 * * * *", 0, 29, 10), ("H(50-59)/10 * * * *", 50, 59, 10)],
)
def test_steps_start_within_the_first(expression: str, low: int, high: int, step: int) -> None:
    starts = set()
    for key in KEYS[:500]:
        plain = resolve_hashed(expression, key).split()[0]
        start = int(plain.split("-")[0])
        assert plain == f"{start}-{high}/{step}"
        starts.add(start)
    assert starts == set(range(low, low + step))


@fast
@given(
    st.uuids(),
    st.sampled_from(["H H H H H", "H/7 H(1-3)/2 H/28 H(3-9) *", "h,30 3 * * THU", "H(0-29),H(30-59) * * * *"]),
)
def test_is_fixed_and_a_valid_plain_expression(key: UUID, expression: str) -> None:
    plain = resolve_hashed(expression, key)
    assert plain == resolve_hashed(expression, UUID(str(key)))
    assert "H" not in plain.upper().replace("THU", "")
    parse_wall_times(plain)


@pytest.mark.parametrize("expression", ["0 3 * * THU", "@hourly", "@monthly", "*/5 * * * *"])
def test_plain_expressions_are_unchanged(expression: str) -> None:
    assert resolve_hashed(expression, KEYS[0]) == expression


def test_recurrence_keeps_its_text_and_fires_by_its_key() -> None:
    ours, theirs = (parse(expression=" H  H * * * ", key=key) for key in KEYS[:2])
    assert ours.expression == theirs.expression == "H H * * *"
    minute, hour = (int(field) for field in resolve_hashed("H H * * *", KEYS[0]).split()[:2])
    first = ours.next_after(EPOCH)
    assert first is not None
    assert (first.hour, first.minute) == (hour, minute)
    assert first != theirs.next_after(EPOCH)


@pytest.mark.parametrize(
    "expression",
    ["H(10-5) * * * *", "H(0-60) * * * *", "* H(0-24) * * *", "* * H(0-5) * *", "* * * * H(0-7)", "H/0 * * * *",
     "H/61 * * * *", "H(0-29)/31 * * * *", "5-H * * * *", "H-5 * * * *", "HH * * * *", "H() * * * *", "(1) * * * *"],
)  # fmt: skip
def test_refuses(expression: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.$") as caught:
        parse(expression=expression, key=KEYS[0])
    assert caught.value.field == "expression"


def test_needs_a_key() -> None:
    with pytest.raises(InvalidInput):
        parse(expression="H * * * *")
