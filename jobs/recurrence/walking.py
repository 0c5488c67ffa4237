"""Ranges of instants.

Invariant: every range is exclusive where it begins and inclusive where it ends, so ranges that meet neither share an
instant nor lose one.
"""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from jobs.recurrence.bounds import RESOLUTION
from jobs.recurrence.values import Kind, Recurrence, seconds_of
from jobs.recurrence.zones import spans_of_day, zone_named


def due_instants(
    recurrence: Recurrence, first: datetime, now: datetime, limit: int
) -> tuple[list[datetime], datetime | None]:
    """The instants from `first` (the stored next one, itself included) to `now`, at most `limit`.

    The second value is the instant that follows the last one returned; it is itself due if `limit` cut the
    list.
    """
    due: list[datetime] = []
    following: datetime | None = first
    while following is not None and following <= now and len(due) < limit:
        due.append(following)
        following = recurrence.next_after(following)
    return due, following


def instants_between(recurrence: Recurrence, after: datetime, until: datetime) -> Iterator[datetime]:
    """The instants later than `after`, up to and including `until`."""
    instant = recurrence.next_after(after)
    while instant is not None and instant <= until:
        yield instant
        instant = recurrence.next_after(instant)


def count_instants(recurrence: Recurrence, after: datetime, until: datetime) -> int:
    """How many instants are later than `after`, up to and including `until`; an interval is not walked for it."""
    if recurrence.kind is not Kind.EVERY:
        return sum(1 for _ in instants_between(recurrence, after, until))
    after = max(after, recurrence.starts_at - RESOLUTION)
    if recurrence.ends_at is not None:
        until = min(until, recurrence.ends_at)
    if until <= after:
        return 0
    total = _on_grid(recurrence, after, until)
    zone = zone_named(recurrence.timezone)
    return total - _on_excluded_days(recurrence, zone, after, until) if recurrence.excluded else total


def _on_excluded_days(recurrence: Recurrence, zone: ZoneInfo, after: datetime, until: datetime) -> int:
    count = 0
    for day in recurrence.excluded:
        for start, end in spans_of_day(day, zone):
            low, high = max(start - RESOLUTION, after), min(end - RESOLUTION, until)
            if low < high:
                count += _on_grid(recurrence, low, high)
    return count


def _on_grid(recurrence: Recurrence, after: datetime, until: datetime) -> int:
    every = seconds_of(recurrence.expression)
    return (until - recurrence.starts_at) // every - (after - recurrence.starts_at) // every
