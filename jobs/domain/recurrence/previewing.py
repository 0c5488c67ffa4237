"""Previews the next instants of a recurrence in local time, with notes about daylight saving.

Invariant: the instants are those that fire; a note only explains them.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.domain.recurrence.bounds import RESOLUTION
from jobs.domain.recurrence.cron import WallTimes
from jobs.domain.recurrence.values import Kind, Recurrence
from jobs.domain.recurrence.zones import Shift, load_zone, utc_offset_at


@dataclass(frozen=True, slots=True)
class PreviewedInstant:
    at: datetime  # in UTC
    local: datetime  # the same instant in the schedule's time zone
    note: str | None = None


def preview_instants(recurrence: Recurrence, after: datetime, count: int) -> list[PreviewedInstant]:
    """Return the first `count` instants later than `after`."""
    zone = load_zone(recurrence.timezone)
    coming: list[PreviewedInstant] = []
    instant = recurrence.next_after(after)
    while instant is not None and len(coming) < count:
        local = instant.astimezone(zone)
        before = coming[-1].local if coming else None
        coming.append(PreviewedInstant(instant, local, _explain_shift(recurrence, zone, local, before)))
        instant = recurrence.next_after(instant)
    return coming


def _explain_shift(recurrence: Recurrence, zone: ZoneInfo, local: datetime, before: datetime | None) -> str | None:
    note = None
    if recurrence.kind is Kind.CRON and not (times := recurrence.wall_times()).by_real_time:
        note = _explain_gap(times, zone, local) or _explain_fold(local)
    return note or (_explain_shift_between(before, local) if before is not None else None)


def _explain_gap(times: WallTimes, zone: ZoneInfo, local: datetime) -> str | None:
    """Return a note if the clocks skip matching times right before this instant."""
    at = local.astimezone(UTC)
    # After a gap that does not end on a whole minute, the instant is up to a minute late.
    shift = Shift(at, utc_offset_at(at - timedelta(minutes=1) - RESOLUTION, zone), utc_offset_at(at, zone))
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


def _explain_fold(local: datetime) -> str | None:
    again = local.replace(fold=1)
    if local.fold or again.utcoffset() == local.utcoffset():
        return None
    return f"{local:%H:%M} comes twice on this day; it runs the first time"


def _explain_shift_between(before: datetime, local: datetime) -> str | None:
    earlier, later = before.utcoffset(), local.utcoffset()
    if earlier is None or later is None or earlier == later:
        return None
    return f"clocks go {'forward' if later > earlier else 'back'} between this one and the one before"
