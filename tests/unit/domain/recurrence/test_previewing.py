"""Previews, descriptions and warnings, and the documentation's daylight-saving table."""

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence import describe_recurrence, lint_recurrence, parse_recurrence, preview_instants
from tests.unit.domain.recurrence.recurrences import (
    EPOCH,
    ODD_ZONES,
    PLAIN_ZONES,
    RESOLUTION,
    at,
    crons,
    fast,
    parse,
    walk,
)

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "schedules.md"
ROW = re.compile(r"\| `([^`]+)` \| (\w+/\w+) \| (\d{4}-\d\d-\d\d) \| ([^|]+) \|")
NEW_YORK = "America/New_York"


def documented() -> list[tuple[str, str, str, str]]:
    return ROW.findall(DOCUMENT.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("expression", "zone", "day", "runs"), documented())
def test_documented_table_is_true(expression: str, zone: str, day: str, runs: str) -> None:
    info, expected_day = ZoneInfo(zone), date.fromisoformat(day)
    midnight = datetime.combine(expected_day, datetime.min.time(), info).astimezone(UTC)
    found = []
    for instant in walk(parse(expression=expression, zone=zone), midnight - RESOLUTION):
        local = instant.astimezone(info)
        if local.date() > expected_day:
            break
        found.append(f"{local:%H:%M%z}")
    assert found == ([] if runs == "never" else runs.split())


def test_documentation_has_the_table() -> None:
    assert len(documented()) >= 12


@pytest.mark.parametrize(
    ("expression", "zone", "after", "index", "note"),
    [
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00Z", 0,
         "02:30 does not exist on this day (clocks go forward); it runs at 03:00"),
        ("0,30 2 * * *", NEW_YORK, "2026-03-07T12:00Z", 0,
         "02:00 to 02:30 do not exist on this day (clocks go forward); they run once, at 03:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", 0,
         "02:15 does not exist on this day (clocks go forward); it runs at 02:30"),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00Z", 1,
         "12:00 does not exist on this day (clocks go forward); it runs at 2011-12-31 00:00"),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", 0, "01:30 comes twice on this day; it runs the first time"),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", 1, "clocks go back between this one and the one before"),
        ("*/30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", 2, "clocks go back between this one and the one before"),
        ("0 12 * * *", NEW_YORK, "2026-03-07T00:00Z", 1, "clocks go forward between this one and the one before"),
        ("0 3 * * *", NEW_YORK, "2026-03-07T12:00Z", 0, None),  # at the end of a gap, but not because of it
        ("30 2 * * *", NEW_YORK, "2026-03-08T12:00Z", 0, None),
        ("30 2 * * *", "UTC", "2026-03-07T12:00Z", 0, None),
    ],
)  # fmt: skip
def test_notes(expression: str, zone: str, after: str, index: int, note: str | None) -> None:
    assert preview_instants(parse(expression=expression, zone=zone), at(after), 3)[index].note == note


@fast
@given(crons(), st.sampled_from(PLAIN_ZONES + ODD_ZONES), st.integers(0, 400), st.integers(0, 20))
def test_shows_the_instants_that_fire(expression: str, zone: str, day: int, count: int) -> None:
    try:
        recurrence = parse(expression=expression, zone=zone)
    except InvalidInput:
        return
    after = at("2026-01-01T00:00Z") + timedelta(days=day)
    preview = preview_instants(recurrence, after, count)
    instants = walk(recurrence, after)
    assert [instant.at for instant in preview] == [next(instants) for _ in range(count)]
    # In UTC: an aware time in a fold equals no time of another zone, not even itself.
    assert all(i.local.astimezone(UTC) == i.at and i.local.tzinfo == ZoneInfo(zone) for i in preview)
    assert all(warning.endswith((".", "?")) for warning in lint_recurrence(recurrence, after))
    assert describe_recurrence(recurrence).endswith(zone)


@pytest.mark.parametrize(
    ("kind", "expression", "zone", "words"),
    [
        ("cron", "0 3 * * *", "Europe/Paris", "At 03:00 every day, Europe/Paris"),
        ("cron", "@hourly", "UTC", "At the start of every hour, UTC"),
        ("cron", "30 9 * * MON-FRI", "UTC", "At 09:30 on Monday through Friday, UTC"),
        ("every", "30", "UTC", "Every 30 seconds"),
        ("every", "3600", "UTC", "Every hour"),
        ("every", "9000", "UTC", "Every 2 hours and 30 minutes"),
        ("every", "1.25", "UTC", "Every 1.25 seconds"),
        ("every", "90061", "UTC", "Every 90061 seconds"),
        ("delay", "3600", "UTC", "1 hour after each run has ended"),
        ("at", "2030-01-31T10:00:00+01:00", "UTC", "Once at 2030-01-31 09:00:00 UTC"),
        ("solar", "sunset -33.87,151.21", "UTC", "At sunset every day, at 33.87°S 151.21°E"),
    ],
)
def test_descriptions(kind: str, expression: str, zone: str, words: str) -> None:
    assert describe_recurrence(parse(kind, expression, zone)) == words


def test_description_names_the_hashed_time_and_the_calendar() -> None:
    hashed = parse(expression="H 3 * * *", key=UUID(int=1), excluded=[date(2026, 12, 25)])
    assert re.fullmatch(r"At 03:\d\d every day, UTC, except on 1 excluded date", describe_recurrence(hashed))


@pytest.mark.parametrize(
    ("kind", "expression", "zone", "warnings"),
    [
        ("cron", "30 2 * * *", NEW_YORK,
         ["02:30 does not exist on 2026-03-08 in America/New_York (clocks go forward): "
          "it runs when the gap ends, at 03:00."]),
        ("cron", "30 1 * * *", NEW_YORK,
         ["01:30 comes twice on 2026-11-01 in America/New_York (clocks go back): it runs the first time only."]),
        ("cron", "*/30 1 * * *", NEW_YORK,
         ["01:00 comes twice on 2026-11-01 in America/New_York (clocks go back): it runs both times."]),
        ("cron", "*/30 2 * * *", NEW_YORK,
         ["02:00 does not exist on 2026-03-08 in America/New_York (clocks go forward): it does not run then."]),
        ("cron", "0 0 29 2 *", "UTC", ["It fires rarely: on 2028-02-29 and then not before 2032-02-29."]),
        ("cron", "0 0 13 * 5", "UTC",
         ["Both the day of the month and the weekday are given: it runs when either of them matches."]),
        ("cron", "*/7 * * * *", NEW_YORK,
         ["*/7 in the minute field restarts every hour: its last step is 4 minutes long, not 7; "
          "an interval (every) keeps the pace."]),
        ("every", "1", "UTC",
         ["It fires 86,400 times a day, with one execution each time; is a longer interval enough?"]),
        ("cron", "30 2 * * *", "UTC", []), ("cron", "0 12 * * *", NEW_YORK, []), ("cron", "0 * * * *", NEW_YORK, []),
        ("cron", "30 2 * 6 *", NEW_YORK, []), ("every", "60", "UTC", []), ("delay", "1", "UTC", []),
        ("solar", "sunrise 48,2", NEW_YORK, []),
    ],
)  # fmt: skip
def test_warnings(kind: str, expression: str, zone: str, warnings: list[str]) -> None:
    assert lint_recurrence(parse(kind, expression, zone), at("2026-01-01T00:00Z")) == warnings


def test_no_warning_outside_the_bounds_of_the_schedule() -> None:
    summer = parse_recurrence(
        kind="cron",
        expression="30 2 * * *",
        timezone=NEW_YORK,
        starts_at=at("2026-05-01T00:00Z"),
        ends_at=at("2026-09-01T00:00Z"),
    )
    assert lint_recurrence(summer, EPOCH) == []
    assert lint_recurrence(summer, at("2027-01-01T00:00Z")) == ["It has no instant left."]
