"""Recurrences for tests, and functions to iterate them."""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st

from jobs.domain.recurrence import Recurrence, parse_recurrence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RESOLUTION = timedelta(microseconds=1)

# Shifts on the hour, away from midnight: here cronsim's own iteration does not depend on its start.
PLAIN_ZONES = ["America/New_York", "Europe/Paris", "Europe/Dublin", "Africa/Casablanca", "Antarctica/Troll", "UTC"]
# Half-hour shifts, shifts at a quarter to, shifts at midnight.
ODD_ZONES = ["Australia/Lord_Howe", "Pacific/Chatham", "America/Havana", "Africa/Cairo", "Asia/Beirut"]

instants = st.integers(0, 4 * 10**15).map(lambda microseconds: EPOCH + timedelta(microseconds=microseconds))
fast = settings(deadline=None, database=None, max_examples=200)
slow = settings(deadline=None, database=None, max_examples=50)


def parse(
    kind: str = "cron",
    expression: str = "0 3 * * *",
    zone: str = "UTC",
    starts_at: datetime = EPOCH,
    ends_at: datetime | None = None,
    *,
    excluded: Iterable[date] = (),
    key: UUID | None = None,
) -> Recurrence:
    return parse_recurrence(
        kind=kind,
        expression=expression,
        timezone=zone,
        starts_at=starts_at,
        ends_at=ends_at,
        excluded=excluded,
        key=key,
    )


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def walk(recurrence: Recurrence, after: datetime) -> Iterator[datetime]:
    instant = recurrence.next_after(after)
    while instant is not None:
        yield instant
        instant = recurrence.next_after(instant)


@st.composite
def cron_field(draw: st.DrawFn, low: int, high: int) -> str:
    a, b = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, high))
    return draw(st.sampled_from(["*", f"*/{step}", f"{a}", f"{a}-{b}", f"{a},{b}", f"{a}-{b}/{step}"]))


def crons() -> st.SearchStrategy[str]:
    day = st.just("*") | cron_field(1, 31)
    weekday = st.just("*") | cron_field(0, 7)
    hour = cron_field(0, 5) | cron_field(0, 23)
    return st.tuples(cron_field(0, 59), hour, day, st.just("*"), weekday).map(" ".join)
