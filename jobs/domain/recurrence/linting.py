"""Warnings about valid recurrences that may surprise.

A warning names an event that will happen, with its date; nothing is refused here.
"""

from datetime import datetime, timedelta

from jobs.domain.recurrence.cron import ALIASES
from jobs.domain.recurrence.values import Kind, Recurrence, parse_interval
from jobs.domain.recurrence.zones import Shift, load_zone, shifts_between

_LOOKAHEAD = timedelta(days=3 * 366)
_FREQUENT_INTERVAL = timedelta(seconds=10)
_RARE_INTERVAL = timedelta(days=367)
_PERIODS = {"minute": 60, "hour": 24}


def lint_recurrence(recurrence: Recurrence, after: datetime) -> list[str]:
    """Return warnings about the time after `after`, one sentence each."""
    warnings = _warn_about_rare_firing(recurrence, after)
    if recurrence.kind is Kind.CRON:
        warnings += _warn_about_clock_shifts(recurrence, after) + _warn_about_fields(recurrence)
    if recurrence.kind is Kind.EVERY and (every := parse_interval(recurrence.expression)) < _FREQUENT_INTERVAL:
        times = timedelta(days=1) // every
        warnings.append(f"It fires {times:,} times a day, with one execution each time; is a longer interval enough?")
    return warnings


def _warn_about_rare_firing(recurrence: Recurrence, after: datetime) -> list[str]:
    if recurrence.kind not in (Kind.CRON, Kind.SOLAR):
        return []
    first = recurrence.next_after(after)
    if first is None:
        return ["It has no instant left."]
    second = recurrence.next_after(first)
    if second is not None and second - first > _RARE_INTERVAL:
        return [f"It fires rarely: on {first:%Y-%m-%d} and then not before {second:%Y-%m-%d}."]
    return []


def _warn_about_clock_shifts(recurrence: Recurrence, after: datetime) -> list[str]:
    """Return warnings about the next gap and the next fold that affect the recurrence."""
    zone, found = load_zone(recurrence.timezone), dict[bool, str]()
    start = max(after, recurrence.starts_at)
    end = min(start + _LOOKAHEAD, recurrence.ends_at or start + _LOOKAHEAD)
    for shift in shifts_between(zone, start, end):
        if shift.forward not in found and (warning := _describe_shift(recurrence, shift)):
            found[shift.forward] = warning
        if len(found) == 2:
            break
    return list(found.values())


def _describe_shift(recurrence: Recurrence, shift: Shift) -> str | None:
    times = recurrence.wall_times()
    plain = recurrence.plain_expression()
    if ALIASES.get(plain, plain).split()[1].startswith("*"):
        return None  # every hour of real time: nothing is lost or repeated
    matches = [wall for wall in times.between(*shift.skipped_or_repeated) if wall.date() not in recurrence.excluded]
    if not matches:
        return None
    first, zone = matches[0], recurrence.timezone
    if shift.forward:
        outcome = (
            "it does not run then" if times.by_real_time else f"it runs when the gap ends, at {_format_gap_end(shift)}"
        )
        return f"{first:%H:%M} does not exist on {first:%Y-%m-%d} in {zone} (clocks go forward): {outcome}."
    outcome = "it runs both times" if times.by_real_time else "it runs the first time only"
    return f"{first:%H:%M} comes twice on {first:%Y-%m-%d} in {zone} (clocks go back): {outcome}."


def _format_gap_end(shift: Shift) -> str:
    start, end = shift.skipped_or_repeated
    return f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"


def _warn_about_fields(recurrence: Recurrence) -> list[str]:
    plain = recurrence.plain_expression()
    minute, hour, day, _, weekday = ALIASES.get(plain, plain).split()
    warnings = []
    for name, field in (("minute", minute), ("hour", hour)):
        step, period = field.removeprefix("*/"), _PERIODS[name]
        if field.startswith("*/") and step.isdecimal() and period % int(step):
            warnings.append(
                f"{field} in the {name} field restarts every {'hour' if name == 'minute' else 'day'}: "
                f"its last step is {period % int(step)} {name}s long, not {step}; "
                "an interval (every) keeps the pace."
            )
    if not day.startswith("*") and not weekday.startswith("*"):
        warnings.append("Both the day of the month and the weekday are given: it runs when either of them matches.")
    return warnings
