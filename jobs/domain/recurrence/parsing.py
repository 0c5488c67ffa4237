"""Parses untrusted values into recurrences.

Invariant: a parsed recurrence fires at least once, and computing its instants never raises.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID

from cronsim import CronSimError

from jobs.domain.errors import InvalidInput
from jobs.domain.recurrence.bounds import (
    EARLIEST,
    LATEST,
    MAX_EVERY,
    MAX_EXCLUDED_DATES,
    MAX_EXPRESSION_LENGTH,
    MAX_SOLAR_WAIT,
    MIN_EVERY,
    RESOLUTION,
)
from jobs.domain.recurrence.cron import ALIASES, parse_wall_times
from jobs.domain.recurrence.hashed import is_hashed, resolve_hashed
from jobs.domain.recurrence.solar import parse_solar_rule
from jobs.domain.recurrence.values import Kind, Recurrence, parse_interval
from jobs.domain.recurrence.zones import timezone_names

_CRON_CHARACTERS = re.compile(r"[0-9A-Za-z*/,# ()-]+")
_CRON_HINT = "write five fields (minute hour day month weekday) or one of @hourly, @daily, @weekly, @monthly, @yearly"


def parse_recurrence(
    *,
    kind: str,
    expression: str,
    timezone: str,
    starts_at: datetime,
    ends_at: datetime | None,
    excluded: Iterable[date] = frozenset(),
    key: UUID | None = None,
) -> Recurrence:
    """Return a recurrence that fires at least once; InvalidInput names the invalid argument."""
    try:
        known_kind = Kind(kind)
    except ValueError:
        raise InvalidInput("kind", f"The kind must be one of {', '.join(Kind)}.") from None
    if timezone not in timezone_names():
        raise InvalidInput("timezone", "The time zone is unknown; use an IANA name such as Europe/Paris or UTC.")
    starts_at = _parse_instant("starts_at", starts_at, label="starts_at")
    if ends_at is not None:
        ends_at = _parse_instant("ends_at", ends_at, label="ends_at")
        if ends_at < starts_at:
            raise InvalidInput("ends_at", "ends_at is before starts_at; choose a later end.")
    days = _parse_excluded(excluded)
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise InvalidInput("expression", f"The expression is longer than {MAX_EXPRESSION_LENGTH} characters.")
    match known_kind:
        case Kind.CRON:
            expression = _parse_cron(expression, key)
        case Kind.EVERY:
            expression = _parse_seconds(expression, label="interval")
        case Kind.DELAY:
            expression = _parse_seconds(expression, label="delay")
        case Kind.AT:
            expression = _parse_at(expression)
        case Kind.SOLAR:
            expression = _parse_solar(expression)

    recurrence = Recurrence(known_kind, expression, timezone, starts_at, ends_at, days, key)
    _check_fires(recurrence)
    return recurrence


def _check_fires(recurrence: Recurrence) -> None:
    just_before = recurrence.starts_at - RESOLUTION
    without_excluded = replace(recurrence, excluded=frozenset()) if recurrence.excluded else recurrence
    first = without_excluded.next_after(just_before)
    if recurrence.kind is Kind.SOLAR and (first is None or first > recurrence.starts_at + MAX_SOLAR_WAIT):
        raise InvalidInput(
            "expression",
            "The schedule would never fire: at this place the sun has no such event before its end, or for two years.",
        )
    if first is None:
        raise InvalidInput(
            "expression", "The schedule would never fire: it has no instant between its start and its end."
        )
    if recurrence.excluded and recurrence.next_after(just_before) is None:
        raise InvalidInput("excluded", "The schedule would never fire: all of its instants lie on excluded dates.")


def _parse_excluded(excluded: Iterable[date]) -> frozenset[date]:
    days = frozenset(excluded)
    if len(days) > MAX_EXCLUDED_DATES:
        raise InvalidInput("excluded", f"There are more than {MAX_EXCLUDED_DATES} excluded dates; leave out past ones.")
    for day in days:
        if type(day) is not date:
            raise InvalidInput("excluded", "An excluded date must be a date without a time, such as 2030-12-25.")
        if not EARLIEST.date() <= day < LATEST.date():
            raise InvalidInput(
                "excluded", f"An excluded date must lie between the years {EARLIEST.year} and {LATEST.year}."
            )
    return days


def _parse_seconds(expression: str, *, label: str) -> str:
    if not MIN_EVERY <= parse_interval(expression) <= MAX_EVERY:
        raise InvalidInput("expression", f"The {label} must be at least 1 second and at most 10 years.")
    return expression


def _parse_cron(expression: str, key: UUID | None) -> str:
    text = " ".join(expression.split())
    if text.lower() in ALIASES:
        return text.lower()
    # cronsim would accept a sixth field, for seconds.
    if len(text.split()) != 5 or not _CRON_CHARACTERS.fullmatch(text):
        raise InvalidInput("expression", f"The cron expression is not valid; {_CRON_HINT}.")
    plain = text
    if is_hashed(text):
        if key is None:
            raise InvalidInput("expression", "H is a hash of the schedule's id, and this schedule has none.")
        plain = resolve_hashed(text, key)
    try:
        parse_wall_times(plain)
    except CronSimError as error:
        if _is_impossible_date(plain):
            raise InvalidInput(
                "expression", "The date never occurs: none of the months in the cron expression has this day."
            ) from None
        raise InvalidInput(
            "expression", f"The cron expression has a {str(error).lower()} field; {_CRON_HINT}."
        ) from None
    return text


def _is_impossible_date(expression: str) -> bool:
    """Return whether day and month of a refused expression are valid separately but not together."""
    minute, hour, day, month, weekday = expression.split()
    try:
        for each in ((minute, hour, day, "*", weekday), (minute, hour, "*", month, weekday)):
            parse_wall_times(" ".join(each))
    except CronSimError:
        return False
    return True


def _parse_solar(expression: str) -> str:
    text = " ".join(expression.split())
    parse_solar_rule(text)
    return text


def _parse_at(expression: str) -> str:
    try:
        instant = datetime.fromisoformat(expression)
    except ValueError:
        raise InvalidInput("expression", "The instant must be ISO 8601, such as 2030-01-31T09:00:00Z.") from None
    return _parse_instant("expression", instant, label="The instant").isoformat()


def _parse_instant(field: str, value: datetime, *, label: str) -> datetime:
    if value.utcoffset() is None:
        raise InvalidInput(field, f"{label} has no UTC offset; append Z or an offset such as +01:00.")
    if not EARLIEST <= value < LATEST:
        raise InvalidInput(field, f"{label} must lie between the years {EARLIEST.year} and {LATEST.year}.")
    return value.astimezone(UTC)
