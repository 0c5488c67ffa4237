"""The coming instants of a recurrence for people: in local time, with what daylight saving does to them.

Invariant: the instants are those that fire; a note only explains them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.recurrence.bounds import RESOLUTION
from jobs.recurrence.cron import WallTimes
from jobs.recurrence.values import Kind, Recurrence
from jobs.recurrence.zones import Shift, offset_of, zone_named


@dataclass(frozen=True, slots=True)
class Instant:
    at: datetime  # in UTC
    local: datetime  # the same moment in the schedule's time zone
    note: str | None = None


def preview(recurrence: Recurrence, after: datetime, count: int) -> list[Instant]:
    """The first `count` instants later than `after`."""
    zone = zone_named(recurrence.timezone)
    coming: list[Instant] = []
    instant = recurrence.next_after(after)
    while instant is not None and len(coming) < count:
        local = instant.astimezone(zone)
        before = coming[-1].local if coming else None
        coming.append(Instant(instant, local, _note(recurrence, zone, local, before)))
        instant = recurrence.next_after(instant)
    return coming


def _note(recurrence: Recurrence, zone: ZoneInfo, local: datetime, before: datetime | None) -> str | None:
    note = None
    if recurrence.kind is Kind.CRON and not (times := recurrence.wall_times()).by_real_time:
        note = _moved(times, zone, local) or _first_of_two(local)
    return note or (_clocks_between(before, local) if before is not None else None)


def _moved(times: WallTimes, zone: ZoneInfo, local: datetime) -> str | None:
    """When the clocks go forward right before this instant, over times that it stands for."""
    at = local.astimezone(UTC)
    # Behind a gap that ends off the whole minute an instant is up to a minute late.
    shift = Shift(at, offset_of(at - timedelta(minutes=1) - RESOLUTION, zone), offset_of(at, zone))
    if not shift.forward:
        return None
    missing = list(times.between(*shift.skipped_or_repeated))
    if not missing:
        return None
    first, last = f"{missing[0]:%H:%M}", f"{missing[-1]:%H:%M}"
    runs = f"at {local:%H:%M}" if missing[0].date() == local.date() else f"at {local:%Y-%m-%d %H:%M}"
    if len(missing) == 1:
        return f"{first} does not exist on this day (clocks go forward); it runs {runs}"
    return f"{first} to {last} do not exist on this day (clocks go forward); they run once, {runs}"


def _first_of_two(local: datetime) -> str | None:
    again = local.replace(fold=1)
    if local.fold or again.utcoffset() == local.utcoffset():
        return None
    return f"{local:%H:%M} comes twice on this day; it runs the first time"


def _clocks_between(before: datetime, local: datetime) -> str | None:
    earlier, later = before.utcoffset(), local.utcoffset()
    if earlier is None or later is None or earlier == later:
        return None
    return f"clocks go {'forward' if later > earlier else 'back'} between this one and the one before"
