"""From untrusted values to a recurrence.

Invariant: what comes out fires at least once, and nothing that it computes later can raise for the values it was given.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID

from cronsim import CronSimError

from jobs.errors import InvalidInput
from jobs.recurrence.bounds import (
    EARLIEST,
    LATEST,
    MAX_EVERY,
    MAX_EXCLUDED_DATES,
    MAX_EXPRESSION_LENGTH,
    MAX_SOLAR_WAIT,
    MIN_EVERY,
    RESOLUTION,
)
from jobs.recurrence.cron import ALIASES, wall_times
from jobs.recurrence.hashed import is_hashed, resolve_hashed
from jobs.recurrence.solar import parse_sun
from jobs.recurrence.values import Kind, Recurrence, seconds_of
from jobs.recurrence.zones import timezone_names

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
    """Turn untrusted values into a recurrence that fires at least once; InvalidInput names the argument."""
    try:
        known_kind = Kind(kind)
    except ValueError:
        raise InvalidInput("kind", f"The kind must be one of {', '.join(Kind)}.") from None
    if timezone not in timezone_names():
        raise InvalidInput("timezone", "The time zone is unknown; use an IANA name such as Europe/Paris or UTC.")
    starts_at = _instant("starts_at", starts_at, called="starts_at")
    if ends_at is not None:
        ends_at = _instant("ends_at", ends_at, called="ends_at")
        if ends_at < starts_at:
            raise InvalidInput("ends_at", "ends_at lies before starts_at; choose a later end.")
    days = _checked_excluded(excluded)
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise InvalidInput("expression", f"The expression is longer than {MAX_EXPRESSION_LENGTH} characters.")
    match known_kind:
        case Kind.CRON:
            expression = _checked_cron(expression, key)
        case Kind.EVERY:
            expression = _checked_seconds(expression, called="interval")
        case Kind.DELAY:
            expression = _checked_seconds(expression, called="delay")
        case Kind.AT:
            expression = _checked_at(expression)
        case Kind.SOLAR:
            expression = _checked_solar(expression)

    recurrence = Recurrence(known_kind, expression, timezone, starts_at, ends_at, days, key)
    _check_fires(recurrence)
    return recurrence


def _check_fires(recurrence: Recurrence) -> None:
    just_before = recurrence.starts_at - RESOLUTION
    unhindered = replace(recurrence, excluded=frozenset()) if recurrence.excluded else recurrence
    first = unhindered.next_after(just_before)
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


def _checked_excluded(excluded: Iterable[date]) -> frozenset[date]:
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


def _checked_seconds(expression: str, *, called: str) -> str:
    if not MIN_EVERY <= seconds_of(expression) <= MAX_EVERY:
        raise InvalidInput("expression", f"The {called} must be at least 1 second and at most 10 years.")
    return expression


def _checked_cron(expression: str, key: UUID | None) -> str:
    text = " ".join(expression.split())
    if text.lower() in ALIASES:
        return text.lower()
    # cronsim would take a sixth field, for seconds.
    if len(text.split()) != 5 or not _CRON_CHARACTERS.fullmatch(text):
        raise InvalidInput("expression", f"The cron expression is not valid; {_CRON_HINT}.")
    plain = text
    if is_hashed(text):
        if key is None:
            raise InvalidInput("expression", "H stands for a value of the schedule's id, and this schedule has none.")
        plain = resolve_hashed(text, key)
    try:
        wall_times(plain)
    except CronSimError as error:
        if _never_comes(plain):
            raise InvalidInput(
                "expression", "Such a day never comes: none of the months in the cron expression has it."
            ) from None
        raise InvalidInput(
            "expression", f"The cron expression has a {str(error).lower()} field; {_CRON_HINT}."
        ) from None
    return text


def _never_comes(refused: str) -> bool:
    """Whether the day and the month of an expression that was refused are right, only not together."""
    minute, hour, day, month, weekday = refused.split()
    try:
        for each in ((minute, hour, day, "*", weekday), (minute, hour, "*", month, weekday)):
            wall_times(" ".join(each))
    except CronSimError:
        return False
    return True


def _checked_solar(expression: str) -> str:
    text = " ".join(expression.split())
    parse_sun(text)
    return text


def _checked_at(expression: str) -> str:
    try:
        instant = datetime.fromisoformat(expression)
    except ValueError:
        raise InvalidInput("expression", "The instant must be ISO 8601, such as 2030-01-31T09:00:00Z.") from None
    return _instant("expression", instant, called="The instant").isoformat()


def _instant(field: str, value: datetime, *, called: str) -> datetime:
    if value.utcoffset() is None:
        raise InvalidInput(field, f"{called} has no UTC offset; append Z or an offset such as +01:00.")
    if not EARLIEST <= value < LATEST:
        raise InvalidInput(field, f"{called} must lie between the years {EARLIEST.year} and {LATEST.year}.")
    return value.astimezone(UTC)
