"""When a schedule is due: nominal instants as values, without a clock or a database.

Invariant: a recurrence is one fixed set of instants. `next_after` walks it strictly upwards, so wherever a
walk starts, and however often it stops and resumes, no instant is skipped and none comes twice.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from jobs.errors import InvalidInput

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
MAX_EXPRESSION_LENGTH = 255
MIN_EVERY = timedelta(seconds=1)
MAX_EVERY = timedelta(days=3653)

_RESOLUTION = timedelta(microseconds=1)
_LONGEST_FOLD = timedelta(days=1)
_DECIMAL_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6})0*)?")
_CRON_CHARACTERS = re.compile(r"[0-9A-Za-z*/,# -]+")
_CRON_HINT = "write five fields (minute hour day month weekday) or one of @hourly, @daily, @weekly, @monthly, @yearly"
# What these two mean differs between machines: they are files of the host, not places.
_HOST_DEPENDENT_ZONES = frozenset({"localtime", "Factory"})
_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Kind(StrEnum):
    CRON = "cron"
    EVERY = "every"
    AT = "at"


class CatchUp(StrEnum):
    """What happens to instants that passed while nothing could fire them."""

    ALL = "all"
    LATEST = "latest"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A validated recurrence; build one from untrusted values with `parse_recurrence`."""

    kind: Kind
    expression: str  # cron text, seconds as decimal text, or an ISO-8601 instant
    timezone: str
    starts_at: datetime  # also the anchor of EVERY: its instants are starts_at + n * every, n >= 0
    ends_at: datetime | None

    def next_after(self, after: datetime) -> datetime | None:
        """The first instant later than `after` within [starts_at, ends_at], in UTC; None if none is left."""
        after = max(after, self.starts_at - _RESOLUTION)
        instant: datetime | None
        match self.kind:
            case Kind.CRON:
                instant = _next_cron(self.expression, _zone(self.timezone), after)
            case Kind.EVERY:
                every = _every(self.expression)
                instant = self.starts_at + ((after - self.starts_at) // every + 1) * every
            case Kind.AT:
                at = datetime.fromisoformat(self.expression)
                instant = at if at > after else None
        if instant is None or (self.ends_at is not None and instant > self.ends_at):
            return None
        return instant.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Settled:
    """A due instant and what becomes of it: it fires, or it is dropped."""

    instant: datetime
    fires: bool


def parse_recurrence(
    *, kind: str, expression: str, timezone: str, starts_at: datetime, ends_at: datetime | None
) -> Recurrence:
    """Turn untrusted values into a recurrence that fires at least once; InvalidInput names the argument."""
    try:
        known_kind = Kind(kind)
    except ValueError:
        raise InvalidInput("kind", f"The kind must be one of {', '.join(Kind)}.") from None
    if timezone not in _timezone_names():
        raise InvalidInput("timezone", "The time zone is unknown; use an IANA name such as Europe/Paris or UTC.")
    starts_at = _instant("starts_at", starts_at, called="starts_at")
    if ends_at is not None:
        ends_at = _instant("ends_at", ends_at, called="ends_at")
        if ends_at < starts_at:
            raise InvalidInput("ends_at", "ends_at lies before starts_at; choose a later end.")
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise InvalidInput("expression", f"The expression is longer than {MAX_EXPRESSION_LENGTH} characters.")
    match known_kind:
        case Kind.CRON:
            expression = _checked_cron(expression)
        case Kind.EVERY:
            expression = _checked_every(expression)
        case Kind.AT:
            expression = _checked_at(expression)

    recurrence = Recurrence(known_kind, expression, timezone, starts_at, ends_at)
    if recurrence.next_after(starts_at - _RESOLUTION) is None:
        raise InvalidInput(
            "expression", "The schedule would never fire: it has no instant between its start and its end."
        )
    return recurrence


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


def jittered(schedule_id: UUID, instant: datetime, jitter_seconds: float) -> datetime:
    """When to fire: for one schedule and instant always the same moment in [instant, instant + jitter)."""
    spread = int(jitter_seconds * 1_000_000)
    if spread <= 0:
        return instant
    microseconds = (instant - EARLIEST) // _RESOLUTION
    digest = hashlib.blake2b(schedule_id.bytes + microseconds.to_bytes(8, "big", signed=True), digest_size=8).digest()
    return instant + (int.from_bytes(digest, "big") * spread >> 64) * _RESOLUTION


def settle(
    instants: Sequence[datetime],
    *,
    now: datetime,
    more_due: bool,
    policy: CatchUp,
    window_seconds: float | None,
    grace_seconds: float,
) -> list[Settled]:
    """Decide for each due instant, in ascending order, whether it fires or is dropped.

    1. An instant at most `grace_seconds` old fires, whatever policy and window say: a busy beat is not
       downtime.
    2. Otherwise, one older than `window_seconds` is dropped (None: no window).
    3. Otherwise the policy decides. ALL: it fires. NONE: it is dropped. LATEST: it fires only if it is the
       newest due instant of all, that is, the last of `instants` and not `more_due` (no due instant follows
       beyond them).
    """
    newest = None if more_due or not instants else instants[-1]

    def fires(instant: datetime) -> bool:
        age = (now - instant).total_seconds()
        if age <= grace_seconds:
            return True
        if window_seconds is not None and age > window_seconds:
            return False
        return policy is CatchUp.ALL or (policy is CatchUp.LATEST and instant == newest)

    return [Settled(instant, fires(instant)) for instant in instants]


def _next_cron(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """cronsim finds the matching wall-clock times; its daylight-saving rules map them to instants here.

    cronsim's own walk through a time zone depends on where it starts: inside a fold it can answer with a
    time that has passed, and beside a shift off the full hour (Lord Howe, Chatham) it leaves out matches.
    """
    local = after.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0)
    if not _follows_real_time(expression):
        instants = (_once(match, zone) for match in _matches(expression, wall))
        return next((instant for instant in instants if instant > after), None)

    ahead = next(_later(_matches(expression, wall), zone, after), None)
    probe = after + _LONGEST_FOLD if ahead is None else min(ahead, after + _LONGEST_FOLD)
    turned_back = _offset(local) - _offset(probe.astimezone(zone))
    if turned_back <= timedelta(0):
        return ahead
    # The clocks go back before `ahead`: times up to the present one are shown again, perhaps sooner.
    repeated = next(_later(_matches(expression, wall - turned_back), zone, after), None)
    return repeated if ahead is None or (repeated is not None and repeated < ahead) else ahead


def _matches(expression: str, wall: datetime) -> Iterator[datetime]:
    """The matching wall-clock times later than `wall`, ascending."""
    # Parsing is half the cost of a call, so a parsed expression is copied; walking changes only its `dt`.
    walk: CronSim = copy(_parsed_cron(expression))
    walk.dt = wall.replace(microsecond=0)
    return walk


def _later(matches: Iterator[datetime], zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """For each wall-clock time the first moment after `after` when clocks show it; in a gap there is none."""
    for match in matches:
        for fold in (0, 1):
            instant = match.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if instant > after and _shows(instant, zone, match):
                yield instant
                break


def _once(match: datetime, zone: ZoneInfo) -> datetime:
    """The one moment of a wall-clock time: the first of the two in a fold, the end of the gap in a gap."""
    while True:
        instant = match.replace(tzinfo=zone).astimezone(UTC)
        if _shows(instant, zone, match):
            return instant
        match += timedelta(minutes=1)


def _shows(instant: datetime, zone: ZoneInfo, wall: datetime) -> bool:
    return instant.astimezone(zone).replace(tzinfo=None) == wall


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta(0)


@lru_cache(maxsize=4096)
def _parsed_cron(expression: str) -> CronSim:
    return CronSim(_ALIASES.get(expression, expression), EARLIEST.replace(tzinfo=None))


def _follows_real_time(expression: str) -> bool:
    """As in Debian's cron: with a wildcard minute or hour it runs by elapsed time, not by the wall clock."""
    minute, hour, *_ = _ALIASES.get(expression, expression).split()
    return minute.startswith("*") or hour.startswith("*")


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=1)
def _timezone_names() -> frozenset[str]:
    # Membership, not a try of ZoneInfo(name): names are paths, and not all files found there are zones.
    return frozenset(available_timezones()) - _HOST_DEPENDENT_ZONES


def _every(expression: str) -> timedelta:
    parts = _DECIMAL_SECONDS.fullmatch(expression)
    if parts is None:
        raise InvalidInput("expression", "The interval must be seconds as a plain decimal number, such as 30 or 1.5.")
    whole, fraction = parts.groups(default="")
    # Whole microseconds: a float would drift away from the anchor.
    return timedelta(seconds=int(whole), microseconds=int(fraction.ljust(6, "0")))


def _checked_every(expression: str) -> str:
    if not MIN_EVERY <= _every(expression) <= MAX_EVERY:
        raise InvalidInput("expression", "The interval must be at least 1 second and at most 10 years.")
    return expression


def _checked_cron(expression: str) -> str:
    text = " ".join(expression.split())
    if text.lower() in _ALIASES:
        return text.lower()
    # cronsim would take a sixth field, for seconds.
    if len(text.split()) != 5 or not _CRON_CHARACTERS.fullmatch(text):
        raise InvalidInput("expression", f"The cron expression is not valid; {_CRON_HINT}.")
    try:
        _parsed_cron(text)
    except CronSimError as error:
        raise InvalidInput(
            "expression", f"The cron expression has a {str(error).lower()} field; {_CRON_HINT}."
        ) from None
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
