"""Parsing of recurrences: invalid input is refused, and everything else fires."""

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence import MAX_EXCLUDED_DATES, Kind
from tests.unit.domain.recurrence.recurrences import EPOCH, MINUTE, ODD_ZONES, at, crons, fast, parse, walk

REFUSED = {
    "cron": [
        "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *",
        "5-1 * * * *", "@reboot", "@hourly x", "a b c d e", "* * * * MON#6", "1;2 * * * *", "\u0661 * * * *",
        "* * * * *\0", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 */29 2 MON#5", "*," * 127 + "* * * * *",
    ],
    "every": [
        "", "0", "0.5", "0.999999", "-1", "+5", "nan", "inf", "1e3", "1_000", " 5", "5s", "1.0000001", "\u0665",
        "999999999999", "9" * 200, "315619201",
    ],
    "at": [
        "", "tomorrow", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z",
    ],
}  # fmt: skip


class TestParsing:
    @pytest.mark.parametrize(("kind", "expression"), [(kind, text) for kind in REFUSED for text in REFUSED[kind]])
    def test_refuses_expressions(self, kind: str, expression: str) -> None:
        self.refused("expression", kind=kind, expression=expression)

    @pytest.mark.parametrize(
        ("expression", "is_impossible"), [("0 0 31 2 *", True), ("0 0 32 2 *", False), ("0 0 31 13 *", False)]
    )
    def test_impossible_date_has_its_own_message(self, expression: str, is_impossible: bool) -> None:
        with pytest.raises(InvalidInput) as refusal:
            parse("cron", expression)
        assert ("never occurs" in str(refusal.value)) == is_impossible

    @pytest.mark.parametrize("expression", ["1", "1.0", "1.5", "1.5000000000", "30", "315619200"])
    def test_accepts_every(self, expression: str) -> None:
        first, second = islice(walk(parse("every", expression), EPOCH - MINUTE), 2)
        assert second - first == timedelta(seconds=float(expression))

    def test_keeps_an_instant_in_utc(self) -> None:
        assert parse("at", "2026-05-01T12:00:00+02:00").expression == "2026-05-01T10:00:00+00:00"

    @pytest.mark.parametrize(
        "zone",
        ["", "../etc", "/etc/localtime", "../../etc/passwd", "Europe", "Europe/", "europe/paris", "Mars/Base",
         "localtime", "Factory", "posixrules", "right/UTC", "tzdata.zi", "UTC\0", "\ud800", "+01:00"],
    )  # fmt: skip
    def test_refuses_time_zones(self, zone: str) -> None:
        self.refused("timezone", zone=zone)

    def test_refuses_invalid_arguments(self) -> None:
        self.refused("kind", kind="sometimes")
        self.refused("starts_at", starts_at=datetime(2026, 1, 1))  # noqa: DTZ001
        self.refused("ends_at", ends_at=datetime(2026, 1, 1))  # noqa: DTZ001
        self.refused("starts_at", starts_at=datetime(9999, 12, 31, tzinfo=UTC))
        self.refused("ends_at", starts_at=EPOCH + MINUTE, ends_at=EPOCH)

    def test_refuses_recurrences_that_never_fire(self) -> None:
        self.refused("expression", expression="0 3 * * *", ends_at=EPOCH + timedelta(hours=2))
        self.refused("expression", kind="at", expression="2026-01-01T00:00:00Z", starts_at=at("2026-01-02T00:00:00Z"))

    @fast
    @given(
        st.sampled_from([*Kind, "?"]),
        st.text(max_size=30) | st.text("0123456789*/,-#LW@ ", max_size=30) | crons(),
        st.sampled_from(ODD_ZONES) | st.text(max_size=12),
        st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-14)), timezone(timedelta(hours=14))])),
    )
    def test_any_input_is_refused_or_fires(self, kind: str, expression: str, zone: str, starts_at: datetime) -> None:
        try:
            recurrence = parse(kind, expression, zone, starts_at)
        except InvalidInput:
            return
        first = recurrence.next_after(EPOCH)
        assert first is not None
        assert first >= starts_at

    def refused(self, field: str, **arguments: object) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse(**arguments)  # type: ignore[arg-type]
        assert caught.value.field == field
        assert caught.value.message.endswith(".")


class TestExcluded:
    def test_refuses_too_many_dates(self) -> None:
        days = [date(2026, 1, 1) + timedelta(days=n) for n in range(MAX_EXCLUDED_DATES + 1)]
        assert len(parse(excluded=days[1:]).excluded) == MAX_EXCLUDED_DATES
        with pytest.raises(InvalidInput, match="more than") as caught:
            parse(excluded=days)
        assert caught.value.field == "excluded"

    @pytest.mark.parametrize("day", [date(1969, 12, 31), date(2200, 1, 1), EPOCH])
    def test_refuses_invalid_dates(self, day: date) -> None:
        with pytest.raises(InvalidInput, match="must") as caught:
            parse(excluded=[day])
        assert caught.value.field == "excluded"
