"""Searches the logs that a user may see, newest execution first, within a time limit.

Common terms are found by scanning segments backwards from the newest, rare ones through the trigram index, some days at
a time. Both only propose segments; `jobs.logs.query` decides what matches. A search that runs out of time returns the
position to continue from: pages neither repeat a line nor miss one that existed when the search began.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from psycopg import errors

from jobs.db import sql
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.logs.indexing import read_indexed_until
from jobs.logs.query import LogQuery
from jobs.models import Execution, Job
from jobs.models.ids import first_id
from jobs.models.visibility import is_operator, shared_with

# A search begins by scanning. It turns to the index when fewer than one of COMMON_MATCH_RATIO segments has a match.
FIRST_SCAN_SEGMENTS = 32
MAX_SCAN_SEGMENTS = 1024
SCANS_BEFORE_INDEX = 2
COMMON_MATCH_RATIO = 16
SCAN_TIMEOUT_SECONDS = 5.0
# A query that takes the index longer is too common for it.
INDEX_TIMEOUT_SECONDS = 0.08
INDEX_BATCH_SEGMENTS = 100
MAX_INDEX_DAYS = 32

# Lines carry the worker's time; days and ids the database's.
MAX_CLOCK_SKEW = timedelta(hours=1)
EPOCH = datetime.fromtimestamp(0, UTC)
MAX_RUN_TIME = timedelta(seconds=limits.MAX_TIMEOUT_SECONDS)
_BEYOND_LAST = 2**31 - 1
# Reading a segment means unpacking kilobytes, a thousand times the planner's cost of a row. With the real cost the
# planner uses the trigram index even for frequent trigrams. Statistics of a day that has just begun are worthless, so
# only plans of bounded cost are enabled.
_PLANNER_SETTINGS = """SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', '1s', true),
 set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', %s, true),
 set_config('enable_bitmapscan', %s, true), set_config('jit', 'off', true),
 set_config('max_parallel_workers_per_gather', '0', true), set_config('random_page_cost', '1.1', true),
 set_config('cpu_tuple_cost', '10', true)"""
# enable_indexscan and enable_bitmapscan: a scan follows an index's order, a trigram query builds a bitmap.
_INDEX_SCAN, _BITMAP_SCAN = ("on", "off"), ("off", "on")


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """A position in newest-first order: everything before it has been searched."""

    day: date
    execution_id: UUID
    attempt: int
    first_sequence: int
    part: int
    offset: int
    scan_only: bool = False  # the term was too common for the index

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
    """`complete`: the page is full or nothing is left; otherwise time ran out and `next_position` may have more."""

    lines: Sequence[FoundLine]
    next_position: SearchPosition | None
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

    def at(self, offset: int) -> SearchPosition:
        return SearchPosition(self.day, self.execution_id, self.attempt, self.first_sequence, self.part, offset)

    def done(self) -> SearchPosition:
        """Return the position after all lines of this segment."""
        return replace(self.at(_BEYOND_LAST), part=self.part - 1)

    def chunk_at(self, offset: int) -> int:
        return max(0, bisect_right(self.offsets, offset) - 1)


def search_logs(
    user: User,
    search: LogSearch,
    *,
    limit: int,
    after: SearchPosition | None = None,
    within_seconds: float = limits.LOG_SEARCH_TIMEOUT_SECONDS,
) -> FoundLines:
    """Return a page of matching lines, restricted to what the user may see."""
    owner_id = search.owner_id if is_operator(user) else _searchable_owner(user, search.job_id)
    # Before searching: chunks indexed during the search are not promised.
    indexed_to = read_indexed_until()
    run = _SearchRun(user, replace(search, owner_id=owner_id), limit, after, deadline=time.monotonic() + within_seconds)
    run.step()
    while not run.is_finished and not run.is_out_of_time:
        run.step()
    return FoundLines(run.lines, run.next_position(), run.is_finished, indexed_to)


def _searchable_owner(user: User, job_id: UUID | None) -> int:
    """Users search their own logs, or those of a job shared with them."""
    job = None if job_id is None else shared_with(user, Job.objects.filter(id=job_id)).first()
    return user.pk if job is None else job.owner_id


class _SearchRun:
    """One search, moving backwards through the days step by step."""

    def __init__(
        self, user: User, search: LogSearch, limit: int, after: SearchPosition | None, *, deadline: float
    ) -> None:
        self.lines: list[FoundLine] = []
        self._deadline = deadline
        self._user, self._search, self._limit = user, search, limit
        self._first_day, last_day = _day_range(search)
        newest = SearchPosition(
            last_day, _newest_execution_id(search), _BEYOND_LAST, _BEYOND_LAST, _BEYOND_LAST, _BEYOND_LAST
        )
        self._position = newest if after is None or after.key > newest.key else after
        self._at_end = False
        self._next_scan_segments, self._scan_count = FIRST_SCAN_SEGMENTS, 0
        self._scan_only = self._position.scan_only or not search.query.is_indexed
        self._use_index = False
        self._days_at_once = 1
        self._oldest_day: date | None = None

    @property
    def is_finished(self) -> bool:
        return self._at_end or len(self.lines) >= self._limit

    @property
    def is_out_of_time(self) -> bool:
        return time.monotonic() >= self._deadline

    def step(self) -> None:
        if self._use_index:
            self._query_index()
        else:
            self._scan()

    def next_position(self) -> SearchPosition | None:
        return None if self._at_end else replace(self._position, scan_only=self._scan_only)

    def _scan(self) -> None:
        began, limit = time.monotonic(), self._next_scan_segments
        scanned = self._fetch(
            "scan_segments", limit, self._first_day, timeout_seconds=SCAN_TIMEOUT_SECONDS, scans=_INDEX_SCAN
        )
        matches = self._collect_lines([each for each in scanned if each.text is not None])
        if matches is None or self.is_finished:
            return
        if not scanned or scanned[-1].number < limit:
            self._at_end = True
            return
        self._position = scanned[-1].done()
        self._scan_count += 1
        if time.monotonic() - began < 0.05:
            self._next_scan_segments = min(limit * 4, MAX_SCAN_SEGMENTS)
        rare = matches * COMMON_MATCH_RATIO < limit
        self._use_index = not self._scan_only and rare and self._scan_count >= SCANS_BEFORE_INDEX

    def _query_index(self) -> None:
        if self._oldest_day is None:
            self._oldest_day = max(self._first_day, _read_oldest_day() or self._position.day)
        days = min(self._days_at_once - 1, max(0, (self._position.day - self._oldest_day).days))
        first_day = self._position.day - timedelta(days=days)
        try:
            found = self._fetch(
                "search_segments",
                INDEX_BATCH_SEGMENTS,
                first_day,
                timeout_seconds=INDEX_TIMEOUT_SECONDS,
                scans=_BITMAP_SCAN,
            )
        except OperationalError as error:
            if not isinstance(error.__cause__, errors.QueryCanceled):
                raise
            self._scan_only, self._use_index = self._days_at_once == 1, self._days_at_once > 1
            self._days_at_once = 1
            return
        if self._collect_lines(found) is None or self.is_finished:
            return
        if len(found) == INDEX_BATCH_SEGMENTS:
            self._position = found[-1].done()
            return
        self._days_at_once = min(self._days_at_once * 2, MAX_INDEX_DAYS)
        if first_day <= self._oldest_day:
            self._at_end = True
        else:
            self._position = SearchPosition(first_day, UUID(int=0), 0, 0, 0, 0)

    def _fetch(
        self, name: str, limit: int, first_day: date, *, timeout_seconds: float, scans: tuple[str, str]
    ) -> list[_Candidate]:
        needles = sorted(self._search.query.needles, key=len, reverse=True)
        parameters = {
            **asdict(self._position),
            **asdict(self._search),
            "first_day": first_day,
            "limit": limit,
            "needle": _like_pattern(needles[0]),
            "other_needle": _like_pattern(needles[min(1, len(needles) - 1)]),
        }
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(_PLANNER_SETTINGS, [f"{int(timeout_seconds * 1000)}ms", *scans])
            return sql.fetch(name, parameters, _Candidate)

    def _collect_lines(self, candidates: Sequence[_Candidate]) -> int | None:
        """Add matching lines until the page is full, and return how many were added.

        None: time ran out before all candidates were read. At least one always is, so every page makes progress.
        """
        before = len(self.lines)
        visible = self._find_visible({each.execution_id for each in candidates})
        for number, each in enumerate(candidates):
            if number and self.is_out_of_time:
                self._position = candidates[number - 1].done()
                return None
            if each.execution_id not in visible or each.text is None:
                continue
            end = self._position.offset if each.at(0).key == self._position.key else len(each.text) + 1
            for match in self._search.query.find_lines(each.text, each.carried):
                chunk = each.chunk_at(match.start)
                if match.start >= end or not self._is_in_range(each.times[chunk]):
                    continue
                job_id, job_name = visible[each.execution_id]
                self.lines.append(
                    FoundLine(
                        *(each.execution_id, job_id, job_name, each.attempt, each.stream),
                        *(each.sequences[chunk], each.times[chunk], match.snippet, match.matches),
                    )
                )
                if len(self.lines) == self._limit:
                    self._position = each.at(match.start)
                    return len(self.lines) - before
        return len(self.lines) - before

    def _find_visible(self, ids: set[UUID]) -> dict[UUID, tuple[UUID, str]]:
        """Return job id and name of the executions that the user may see; segments outlive pruned executions."""
        if not ids:
            return {}
        rows = shared_with(self._user, Execution.objects.filter(id__in=ids), job="job")
        with transaction.atomic(), with_timeouts(statement_seconds=SCAN_TIMEOUT_SECONDS):
            return {key: (job_id, name) for key, job_id, name in rows.values_list("id", "job_id", "job__name")}

    def _is_in_range(self, at: datetime) -> bool:
        since, until = self._search.since, self._search.until
        return (since is None or at >= since) and (until is None or at <= until)


def _day_range(search: LogSearch) -> tuple[date, date]:
    """Return the first and last claim day of attempts that can have written lines in the searched range."""
    first, last = date.min, datetime.now(UTC).date() + MAX_CLOCK_SKEW
    if search.since is not None:
        first = _shift_day(lambda at: at - MAX_RUN_TIME - MAX_CLOCK_SKEW, search.since, date.min)
    if search.until is not None:
        last = min(last, _shift_day(lambda at: at + MAX_CLOCK_SKEW, search.until, date.max))
    return first, last


def _newest_execution_id(search: LogSearch) -> UUID:
    """Return an upper bound for the ids (which grow with time) of executions with lines in the range."""
    if search.until is None or search.until > datetime.now(UTC):
        return UUID(int=2**128 - 1)
    return first_id(max(search.until, EPOCH) + MAX_CLOCK_SKEW)


def _shift_day(shift: Callable[[datetime], datetime], at: datetime, beyond: date) -> date:
    try:
        return shift(at.astimezone(UTC)).date()
    except OverflowError:
        return beyond


def _read_oldest_day() -> date | None:
    with transaction.atomic(), with_timeouts(statement_seconds=SCAN_TIMEOUT_SECONDS), connection.cursor() as cursor:
        cursor.execute("SELECT min(day) FROM jobs_logsegment")
        oldest: date | None = cursor.fetchone()[0]
    return oldest


def _like_pattern(needle: str) -> str:
    return "%" + needle.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
