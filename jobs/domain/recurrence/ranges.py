"""Listing, counting and searching the instants of a range.

Invariant: every range excludes its start and includes its end, so adjacent ranges neither share nor lose an instant.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.recurrence.cron import WallTimes
from jobs.domain.recurrence.values import Kind, Recurrence, parse_interval
from jobs.domain.recurrence.zones import load_zone, shifts_between, spans_of_day, utc_offset_at

# Clocks have jumped by a whole day; a shift affects only times within this distance of it.
_SHIFT_MARGIN = timedelta(hours=25)
# Up to this many instants are iterated instead of found by bisection.
_MAX_LINEAR_STEPS = 64


def find_due_instants(
    recurrence: Recurrence, first: datetime, now: datetime, limit: int
) -> tuple[list[datetime], datetime | None]:
    """Return the instants from `first` (included) to `now`, at most `limit`, and the instant that follows them.

    The following instant is itself due if `limit` truncated the list.
    """
    due: list[datetime] = []
    following: datetime | None = first
    while following is not None and following <= now and len(due) < limit:
        due.append(following)
        following = recurrence.next_after(following)
    return due, following


def instants_between(recurrence: Recurrence, after: datetime, until: datetime) -> Iterator[datetime]:
    """Yield the instants later than `after`, up to and including `until`."""
    instant = recurrence.next_after(after)
    while instant is not None and instant <= until:
        yield instant
        instant = recurrence.next_after(instant)


def find_last_instant(recurrence: Recurrence, first: datetime, until: datetime) -> tuple[datetime, datetime | None]:
    """Return the last instant from `first` (an instant) to `until`, and the one after it, by bisection in ~40 steps."""
    last, high, following = first, until, recurrence.next_after(first)
    while following is not None and following <= until:
        last = following
        middle = last + (high - last) / 2
        probe = recurrence.next_after(middle)
        if probe is not None and probe <= until:
            last = probe
        else:
            high = middle
        following = recurrence.next_after(last)
    return last, following


def find_nth_instant(recurrence: Recurrence, first: datetime, number: int, until: datetime) -> datetime | None:
    """Return the n-th instant, where `first` is number 1; None if it is later than `until`."""
    low, high, left = first, until, number - 1
    while left > _MAX_LINEAR_STEPS:
        if (high - low) <= RESOLUTION:
            return None
        middle = low + (high - low) / 2
        within = count_instants(recurrence, low, middle)
        if within >= left:
            high = middle
        else:
            low, left = middle, left - within
        if low >= high:
            return None
    # `low` may lie between two instants; counting continues with the next one.
    instant: datetime | None = low
    for _ in range(left):
        instant = None if instant is None else recurrence.next_after(instant)
    return instant if instant is not None and instant <= until else None


def count_instants(recurrence: Recurrence, after: datetime, until: datetime) -> int:
    """Count the instants later than `after`, up to and including `until`.

    Intervals are counted by arithmetic and cron expressions day by day, without iterating the instants.
    """
    if recurrence.kind not in (Kind.EVERY, Kind.CRON):
        return sum(1 for _ in instants_between(recurrence, after, until))
    after = max(after, recurrence.starts_at - RESOLUTION)
    if recurrence.ends_at is not None:
        until = min(until, recurrence.ends_at)
    if until <= after:
        return 0
    if recurrence.kind is Kind.CRON:
        return _count_cron(recurrence, after, until)
    total = _count_on_grid(recurrence, after, until)
    zone = load_zone(recurrence.timezone)
    return total - _count_on_excluded_days(recurrence, zone, after, until) if recurrence.excluded else total


def _count_cron(recurrence: Recurrence, after: datetime, until: datetime) -> int:
    """Count wall-clock times, where each is one instant; near clock shifts, iterate the instants."""
    zone, times, total = load_zone(recurrence.timezone), recurrence.wall_times(), 0
    for shift in shifts_between(zone, after - _SHIFT_MARGIN, until + _SHIFT_MARGIN):
        calm_until = min(max(shift.at - _SHIFT_MARGIN, after), until)
        total += _count_between_shifts(times, zone, recurrence, after, calm_until)
        near_until = min(max(shift.at + _SHIFT_MARGIN, calm_until), until)
        total += sum(1 for _ in instants_between(recurrence, calm_until, near_until))
        after = near_until
    return total + _count_between_shifts(times, zone, recurrence, after, until)


def _count_between_shifts(
    times: WallTimes, zone: ZoneInfo, recurrence: Recurrence, after: datetime, until: datetime
) -> int:
    if until <= after:
        return 0
    offset = utc_offset_at(until, zone)
    walls = [(instant.astimezone(UTC) + offset).replace(tzinfo=None) for instant in (after, until)]
    return times.count(walls[0], walls[1], recurrence.excluded)


def _count_on_excluded_days(recurrence: Recurrence, zone: ZoneInfo, after: datetime, until: datetime) -> int:
    count = 0
    for day in recurrence.excluded:
        for start, end in spans_of_day(day, zone):
            low, high = max(start - RESOLUTION, after), min(end - RESOLUTION, until)
            if low < high:
                count += _count_on_grid(recurrence, low, high)
    return count


def _count_on_grid(recurrence: Recurrence, after: datetime, until: datetime) -> int:
    every = parse_interval(recurrence.expression)
    return (until - recurrence.starts_at) // every - (after - recurrence.starts_at) // every
