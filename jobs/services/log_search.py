"""Finds lines in all logs that somebody may see, the newest execution first, within a bounded time.

What is common is met by walking from the newest segment backwards, what is rare is asked of the index of trigrams, some
days at a time. Either only proposes segments: `jobs.log_query` decides. A search whose time is up says where to go on:
pages repeat no line and leave none out that was there when the first was asked for.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from psycopg import errors

from jobs import conf, sql
from jobs.log_query import LogQuery
from jobs.models import Execution, Job
from jobs.models.ids import first_id
from jobs.querysets.visibility import shared_with
from jobs.services.database import bounded
from jobs.services.log_indexing import read_reached_at

# A walk begins with few segments; while what it looks for is met in one of so many, it goes on.
WALK_SEGMENTS = 32
MOST_WALKED_AT_ONCE = 1024
WALKS_BEFORE_INDEX = 2
COMMON_ENOUGH = 16
WALK_SECONDS = 5.0
# What the index is not done with by then is too common for it.
INDEX_SECONDS = 0.08
FOUND_AT_ONCE = 100
MOST_DAYS_AT_ONCE = 32

# Lines carry their worker's time, days and ids the database's.
CLOCKS_DIFFER = timedelta(hours=1)
EPOCH = datetime.fromtimestamp(0, UTC)
LONGEST_RUN = timedelta(seconds=conf.MAX_TIMEOUT_SECONDS)
_FAR = 2**31 - 1
# To look at a segment is to unpack and read kilobytes, a thousand times what the planner takes a row for: told so, it
# asks the trigrams even if they are many.
# The estimates for a day that has just begun are worth nothing: only plans of bounded cost are left to choose from.
_BOUNDS = """SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', '1s', true),
 set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', %s, true),
 set_config('enable_bitmapscan', %s, true), set_config('jit', 'off', true),
 set_config('max_parallel_workers_per_gather', '0', true), set_config('random_page_cost', '1.1', true),
 set_config('cpu_tuple_cost', '10', true)"""
# Index and bitmap scans: a walk follows the order of an index, a question to the trigrams is answered as a bitmap.
_SORTED, _BITMAP = ("on", "off"), ("off", "on")


@dataclass(frozen=True, slots=True)
class Position:
    """A line: what lies before it, the newest first, has been looked at."""

    day: date
    execution_id: UUID
    attempt: int
    first_sequence: int
    part: int
    offset: int
    walking: bool = False  # the index was asked in vain

    @property
    def key(self) -> tuple[date, UUID, int, int, int]:
        return self.day, self.execution_id, self.attempt, self.first_sequence, self.part


@dataclass(frozen=True, slots=True)
class LogSearch:
    query: LogQuery
    owner_id: int | None = None
    job_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class FoundLine:
    execution_id: UUID
    job_id: UUID
    job_name: str
    attempt: int
    stream: str
    sequence: int
    at: datetime
    line: str
    matches: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class FoundLines:
    """`complete`: the page is full or nothing is left; else the time was up, and more may come after `following`."""

    lines: Sequence[FoundLine]
    following: Position | None
    complete: bool
    indexed_to: datetime | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    day: date
    execution_id: UUID
    attempt: int
    first_sequence: int
    part: int
    stream: str
    offsets: Sequence[int]
    sequences: Sequence[int]
    times: Sequence[datetime]
    carried: int
    text: str | None
    number: int

    def at(self, offset: int) -> Position:
        return Position(self.day, self.execution_id, self.attempt, self.first_sequence, self.part, offset)

    def done(self) -> Position:
        """Behind all of its lines: it is not read again."""
        return replace(self.at(_FAR), part=self.part - 1)

    def chunk_at(self, offset: int) -> int:
        return max(0, bisect_right(self.offsets, offset) - 1)


def search_logs(
    user: User,
    search: LogSearch,
    *,
    limit: int,
    after: Position | None = None,
    within_seconds: float = conf.LOG_SEARCH_SECONDS,
) -> FoundLines:
    """Only what the user may see, whatever the search asks for."""
    owner_id = search.owner_id if user.is_staff else _whose(user, search.job_id)
    # Before anything is looked at: it promises no more than what was there.
    reached_at = read_reached_at()
    hunt = _Hunt(user, replace(search, owner_id=owner_id), limit, after, deadline=time.monotonic() + within_seconds)
    hunt.step()
    while not hunt.over and not hunt.late:
        hunt.step()
    return FoundLines(hunt.lines, hunt.following(), hunt.over, reached_at)


def _whose(user: User, job_id: UUID | None) -> int:
    """Of all logs only one's own are searched; of a job that is shared with one, its owner's."""
    job = None if job_id is None else shared_with(user, Job.objects.filter(id=job_id)).first()
    return user.pk if job is None else job.owner_id


class _Hunt:
    """One request on its way back through the days."""

    def __init__(self, user: User, search: LogSearch, limit: int, after: Position | None, *, deadline: float) -> None:
        self.lines: list[FoundLine] = []
        self._deadline = deadline
        self._user, self._search, self._limit = user, search, limit
        self._first_day, last_day = _days(search)
        newest = Position(last_day, _youngest(search), _FAR, _FAR, _FAR, _FAR)
        self._position = newest if after is None or after.key > newest.key else after
        self._at_end = False
        self._walk_next, self._walks = WALK_SEGMENTS, 0
        self._only_walks = self._position.walking or not search.query.is_indexed
        self._asks_index = False
        self._days_at_once = 1
        self._oldest_day: date | None = None

    @property
    def over(self) -> bool:
        return self._at_end or len(self.lines) >= self._limit

    @property
    def late(self) -> bool:
        return time.monotonic() >= self._deadline

    def step(self) -> None:
        if self._asks_index:
            self._ask_index()
        else:
            self._walk()

    def following(self) -> Position | None:
        return None if self._at_end else replace(self._position, walking=self._only_walks)

    def _walk(self) -> None:
        began, limit = time.monotonic(), self._walk_next
        walked = self._fetch("walk_segments", limit, self._first_day, within=WALK_SECONDS, scans=_SORTED)
        met = self._take([each for each in walked if each.text is not None])
        if met is None or self.over:
            return
        if not walked or walked[-1].number < limit:
            self._at_end = True
            return
        self._position = walked[-1].done()
        self._walks += 1
        if time.monotonic() - began < 0.05:
            self._walk_next = min(limit * 4, MOST_WALKED_AT_ONCE)
        rare = met * COMMON_ENOUGH < limit
        self._asks_index = not self._only_walks and rare and self._walks >= WALKS_BEFORE_INDEX

    def _ask_index(self) -> None:
        if self._oldest_day is None:
            self._oldest_day = max(self._first_day, _read_oldest_day() or self._position.day)
        days = min(self._days_at_once - 1, max(0, (self._position.day - self._oldest_day).days))
        first_day = self._position.day - timedelta(days=days)
        try:
            found = self._fetch("find_segments", FOUND_AT_ONCE, first_day, within=INDEX_SECONDS, scans=_BITMAP)
        except OperationalError as error:
            if not isinstance(error.__cause__, errors.QueryCanceled):
                raise
            self._only_walks, self._asks_index = self._days_at_once == 1, self._days_at_once > 1
            self._days_at_once = 1
            return
        if self._take(found) is None or self.over:
            return
        if len(found) == FOUND_AT_ONCE:
            self._position = found[-1].done()
            return
        self._days_at_once = min(self._days_at_once * 2, MOST_DAYS_AT_ONCE)
        if first_day <= self._oldest_day:
            self._at_end = True
        else:
            self._position = Position(first_day, UUID(int=0), 0, 0, 0, 0)

    def _fetch(
        self, name: str, limit: int, first_day: date, *, within: float, scans: tuple[str, str]
    ) -> list[_Candidate]:
        search, position = self._search, self._position
        needles = sorted(search.query.needles, key=len, reverse=True)
        parameters = {
            "day": position.day,
            "execution_id": position.execution_id,
            "attempt": position.attempt,
            "first_sequence": position.first_sequence,
            "part": position.part,
            "first_day": first_day,
            "limit": limit,
            "owner_id": search.owner_id,
            "job_id": search.job_id,
            "stream": search.stream,
            "since": search.since,
            "until": search.until,
            "needle": _containing(needles[0]),
            "other_needle": _containing(needles[min(1, len(needles) - 1)]),
        }
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(_BOUNDS, [f"{int(within * 1000)}ms", *scans])
            return sql.fetch(name, parameters, _Candidate)

    def _take(self, candidates: Sequence[_Candidate]) -> int | None:
        """Adds the lines of these that match until the page is full, and returns how many it added.

        None: the time was up before all were looked at. One is always, so that every page gets further.
        """
        before = len(self.lines)
        seen = self._visible({each.execution_id for each in candidates})
        for number, each in enumerate(candidates):
            if number and self.late:
                self._position = candidates[number - 1].done()
                return None
            if each.execution_id not in seen or each.text is None:
                continue
            begun = self._position.offset if each.at(0).key == self._position.key else len(each.text) + 1
            for match in self._search.query.find_lines(each.text, each.carried):
                chunk = each.chunk_at(match.start)
                if match.start >= begun or not self._in_time(each.times[chunk]):
                    continue
                job_id, job_name = seen[each.execution_id]
                self.lines.append(
                    FoundLine(
                        *(each.execution_id, job_id, job_name, each.attempt, each.stream),
                        *(each.sequences[chunk], each.times[chunk], match.shown, match.matches),
                    )
                )
                if len(self.lines) == self._limit:
                    self._position = each.at(match.start)
                    return len(self.lines) - before
        return len(self.lines) - before

    def _visible(self, ids: set[UUID]) -> dict[UUID, tuple[UUID, str]]:
        """What the API would not show is not found either, though its text may still lie in its day."""
        if not ids:
            return {}
        rows = shared_with(self._user, Execution.objects.filter(id__in=ids), job="job")
        with transaction.atomic(), bounded(statement_seconds=WALK_SECONDS):
            return {key: (job_id, name) for key, job_id, name in rows.values_list("id", "job_id", "job__name")}

    def _in_time(self, at: datetime) -> bool:
        since, until = self._search.since, self._search.until
        return (since is None or at >= since) and (until is None or at <= until)


def _days(search: LogSearch) -> tuple[date, date]:
    """On which days attempts were claimed that can have written such lines."""
    first, last = date.min, datetime.now(UTC).date() + CLOCKS_DIFFER
    if search.since is not None:
        first = _day(lambda at: at - LONGEST_RUN - CLOCKS_DIFFER, search.since, date.min)
    if search.until is not None:
        last = min(last, _day(lambda at: at + CLOCKS_DIFFER, search.until, date.max))
    return first, last


def _youngest(search: LogSearch) -> UUID:
    """Ids grow with time: what was created later can have written nothing by then."""
    if search.until is None or search.until > datetime.now(UTC):
        return UUID(int=2**128 - 1)
    return first_id(max(search.until, EPOCH) + CLOCKS_DIFFER)


def _day(shift: Callable[[datetime], datetime], at: datetime, beyond: date) -> date:
    try:
        return shift(at.astimezone(UTC)).date()
    except OverflowError:
        return beyond


def _read_oldest_day() -> date | None:
    with transaction.atomic(), bounded(statement_seconds=WALK_SECONDS), connection.cursor() as cursor:
        cursor.execute("SELECT min(day) FROM jobs_logsegment")
        oldest: date | None = cursor.fetchone()[0]
    return oldest


def _containing(needle: str) -> str:
    return "%" + needle.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
