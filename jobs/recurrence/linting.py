"""What a person should know before they save a recurrence that is valid, but may surprise.

Invariant: a warning names a thing that will happen, with its date; nothing is refused here.
"""

from datetime import datetime, timedelta

from jobs.recurrence.cron import ALIASES
from jobs.recurrence.values import Kind, Recurrence, seconds_of
from jobs.recurrence.zones import Shift, shifts_between, zone_named

_LOOK_AHEAD = timedelta(days=3 * 366)
_OFTEN = timedelta(seconds=10)
_SELDOM = timedelta(days=367)
_PERIODS = {"minute": 60, "hour": 24}


def lint(recurrence: Recurrence, after: datetime) -> list[str]:
    """Warnings about the time after `after`, each one sentence."""
    warnings = _seldom(recurrence, after)
    if recurrence.kind is Kind.CRON:
        warnings += _daylight_saving(recurrence, after) + _fields(recurrence)
    if recurrence.kind is Kind.EVERY and (every := seconds_of(recurrence.expression)) < _OFTEN:
        times = timedelta(days=1) // every
        warnings.append(f"It fires {times:,} times a day, and each time is one execution; is a slower pace enough?")
    return warnings


def _seldom(recurrence: Recurrence, after: datetime) -> list[str]:
    if recurrence.kind not in (Kind.CRON, Kind.SOLAR):
        return []
    first = recurrence.next_after(after)
    if first is None:
        return ["It has no instant left."]
    second = recurrence.next_after(first)
    if second is not None and second - first > _SELDOM:
        return [f"It fires seldom: on {first:%Y-%m-%d} and then not before {second:%Y-%m-%d}."]
    return []


def _daylight_saving(recurrence: Recurrence, after: datetime) -> list[str]:
    """The next gap and the next fold that touch it."""
    zone, found = zone_named(recurrence.timezone), dict[bool, str]()
    start = max(after, recurrence.starts_at)
    end = min(start + _LOOK_AHEAD, recurrence.ends_at or start + _LOOK_AHEAD)
    for shift in shifts_between(zone, start, end):
        if shift.forward not in found and (warning := _touched(recurrence, shift)):
            found[shift.forward] = warning
        if len(found) == 2:
            break
    return list(found.values())


def _touched(recurrence: Recurrence, shift: Shift) -> str | None:
    times = recurrence.wall_times()
    plain = recurrence.plain_expression()
    if ALIASES.get(plain, plain).split()[1].startswith("*"):
        return None  # every hour of real time: nothing is lost or repeated
    matches = [wall for wall in times.between(*shift.skipped_or_repeated) if wall.date() not in recurrence.excluded]
    if not matches:
        return None
    first, zone = matches[0], recurrence.timezone
    if shift.forward:
        outcome = "it does not run then" if times.by_real_time else f"it runs when the gap ends, at {_end(shift)}"
        return f"{first:%H:%M} does not exist on {first:%Y-%m-%d} in {zone} (clocks go forward): {outcome}."
    outcome = "it runs both times" if times.by_real_time else "it runs the first time only"
    return f"{first:%H:%M} comes twice on {first:%Y-%m-%d} in {zone} (clocks go back): {outcome}."


def _end(shift: Shift) -> str:
    start, end = shift.skipped_or_repeated
    return f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"


def _fields(recurrence: Recurrence) -> list[str]:
    plain = recurrence.plain_expression()
    minute, hour, day, _, weekday = ALIASES.get(plain, plain).split()
    warnings = []
    for name, field in (("minute", minute), ("hour", hour)):
        step, period = field.removeprefix("*/"), _PERIODS[name]
        if field.startswith("*/") and step.isdecimal() and period % int(step):
            warnings.append(
                f"{field} in the {name} field starts anew every {'hour' if name == 'minute' else 'day'}: "
                f"its last step is {period % int(step)} {name}s long, not {step}; "
                "an interval (every) keeps the pace."
            )
    if not day.startswith("*") and not weekday.startswith("*"):
        warnings.append("Both the day of the month and the weekday are given: it runs when either of them matches.")
    return warnings
