"""The due window: sorted sets in Redis, one per minute, of the schedules that are due within the next hour.

The window only tells beat when to wake; Postgres decides which schedules are due. So lost or wrong entries cost at most
beat's longest sleep, and a window that was not refilled since Redis lost data or failed is not used. Content that no
refill wrote is ignored, and a key of the wrong type is replaced. Scores are the database's time.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID, uuid4

import redis
from django.conf import settings
from redis.client import Pipeline

from jobs.db import sql
from jobs.db.clock import database_now
from jobs.db.wakeups import BestEffortRedis, best_effort_redis

logger = logging.getLogger(__name__)

KEY_PREFIX = "punctual:due:"
FILLED_KEY = "punctual:due:filled"
FILLING_KEY = "punctual:due:filling"
WINDOW_LENGTH = timedelta(hours=1)
# The near part of the window that every refill reads again, to repair lost announcements before they are due.
REREAD_LENGTH = timedelta(minutes=3)
# Refills come every minute; without one for this long the window is invalid.
FILL_TTL_SECONDS = 200
KEY_RETENTION_SECONDS = 300
PAGE_SCHEDULES = 5000
WRONG_TYPE_ERROR = "WRONGTYPE"
REFILL_TIMEOUT_SECONDS = 5.0
# An instant found at most this long before the announced time counts as announced.
TOLERANCE_SECONDS = 0.05
MAX_PENDING_BATCHES = 1000
REPORT_SECONDS = 60.0
_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class DueEntry:
    schedule_id: UUID
    due_at: datetime


@dataclass(frozen=True, slots=True)
class NextAnnouncement:
    """When the next schedule is due according to the window; None: not within this sleep."""

    due_at: float | None


class DatabaseClock:
    """The database's time as an offset to the monotonic clock, measured now and then."""

    def __init__(self) -> None:
        self._offset = 0.0
        self.uncertainty = 0.0

    def measure(self) -> None:
        before = time.monotonic()
        now = database_now()
        after = time.monotonic()
        self._offset = now.timestamp() - (before + after) / 2
        self.uncertainty = (after - before) / 2

    def now(self) -> float:
        return time.monotonic() + self._offset


class DueWindow:
    def __init__(self, connection: BestEffortRedis) -> None:
        self._redis = connection
        self.unannounced = 0  # schedules found due without an announcement
        self.lost = 0  # announcements that Redis did not store
        self.hits = 0  # answers that beat relied on
        self.fallbacks = 0  # times that beat had to query Postgres instead
        self._invalidated = False
        self._invalid_mark: object = None
        self._lock = threading.Lock()

    def add(self, dues: Sequence[DueEntry], *, moved: bool = False) -> None:
        """Add entries; never raises. A later time of a schedule replaces an earlier one, with `moved` any time does."""
        if dues and not self._redis.try_call(lambda client: _add_entries(client, dues, moved=moved)):
            self.lost += len(dues)
            self.invalidate()

    def next_after(self, moment: float) -> NextAnnouncement | None:
        """Return the first entry after `moment` in one round trip; None: the window is invalid, query Postgres."""

        def peek(client: redis.Redis) -> list[object]:
            # One transaction: a flush in between would make an empty window seem filled.
            pipeline = client.pipeline(transaction=True)
            pipeline.get(FILLED_KEY)
            for minute in (_to_minute(moment), _to_minute(moment) + 1):
                pipeline.zrangebyscore(
                    f"{KEY_PREFIX}{minute}", f"({moment:.6f}", "+inf", start=0, num=1, withscores=True
                )
            return _execute_pipeline(pipeline)

        answer = self._redis.try_call(peek)
        if answer is None:
            self.fallbacks += 1
            self.invalidate()
            return None
        filled, *found = answer
        with self._lock:
            if self._invalidated:
                self._invalidated, self._invalid_mark = False, filled
        is_sound = _parse_filled_until(filled, moment) is not None and all(
            isinstance(entries, list) for entries in found
        )
        if not is_sound or filled == self._invalid_mark:
            self.fallbacks += 1
            return None
        self.hits += 1
        return NextAnnouncement(
            min((entries[0][1] for entries in found if isinstance(entries, list) and entries), default=None)
        )

    def invalidate(self) -> None:
        """Distrust the window until the next refill, because entries may be missing."""
        with self._lock:
            self._invalidated = True

    def counts(self) -> dict[str, int]:
        return {
            "due_window_hits": self.hits,
            "due_window_fallbacks": self.fallbacks,
            "due_window_unannounced": self.unannounced,
            "due_window_lost": self.lost,
        }

    def report(self) -> None:
        """Log at shutdown how reliable the window was."""
        logger.info(
            "Due window: %d hits, %d fallbacks to Postgres, %d schedules due unannounced, %d announcements lost",
            self.hits,
            self.fallbacks,
            self.unannounced,
            self.lost,
        )

    def count_unannounced(self, found: Sequence[DueEntry]) -> int:
        """Count the entries, found due before the window announced them, that are still not announced."""

        def scores(client: redis.Redis) -> list[object]:
            pipeline = client.pipeline(transaction=False)
            for due in found:
                pipeline.zscore(f"{KEY_PREFIX}{_to_minute(_to_score(due.due_at))}", str(due.schedule_id))
            return _execute_pipeline(pipeline)

        answer = self._redis.try_call(scores) or []
        count = sum(
            not isinstance(score, float) or score < _to_score(due.due_at)
            for due, score in zip(found, answer, strict=False)
        )
        self.unannounced += count
        return count


class Announcer:
    """Writes firing's announcements on a separate thread, so that a slow Redis never delays firing."""

    def __init__(self, window: DueWindow) -> None:
        self._window = window
        self._pending: deque[tuple[list[DueEntry], Sequence[DueEntry]]] = deque()
        self._sleep_range: tuple[float, float] | None = None
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="due window", daemon=True)
        self._reported_at = -REPORT_SECONDS

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=1)

    def expect(self, asleep_from: float | None, wake_at: float | None) -> None:
        """Note the range that beat sleeps through because of the window; None: because of Postgres."""
        self._sleep_range = None if asleep_from is None else (asleep_from, math.inf if wake_at is None else wake_at)

    def put(self, found: Sequence[DueEntry], upcoming: Sequence[DueEntry]) -> None:
        """Announce for firing: what it found due, and when each of these schedules is due next."""
        upcoming = _select_within_window(upcoming)
        asleep_from, wake_at = self._sleep_range or (math.inf, math.inf)
        # Schedules due before the sleep were locked elsewhere; the window did not miss them.
        early = [due for due in found if asleep_from < _to_score(due.due_at) < wake_at - TOLERANCE_SECONDS]
        if len(self._pending) >= MAX_PENDING_BATCHES:
            self._window.lost += len(upcoming)
            self._window.invalidate()
            return
        self._pending.append((early, upcoming))
        self._wanted.set()

    def pending_after(self, moment: float) -> float | None:
        """Return the earliest announcement that is not yet in Redis."""
        scores = (_to_score(due.due_at) for _, upcoming in list(self._pending) for due in upcoming)
        return min((score for score in scores if score > moment), default=None)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            self._wanted.clear()
            while self._pending and not self._stopping.is_set():
                early, upcoming = self._pending[0]
                if early and self._window.count_unannounced(early):
                    self._report()
                self._window.add(upcoming)
                # Only now: beat finds it here until it is in Redis.
                self._pending.popleft()

    def _report(self) -> None:
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            logger.info("Due window missed entries: %d schedules due unannounced so far", self._window.unannounced)


@lru_cache(maxsize=1)
def due_window() -> DueWindow:
    return DueWindow(best_effort_redis())


def announce_due(dues: Iterable[tuple[UUID, datetime | None]]) -> bool:
    """Announce new due times of schedules after their commit; return whether one is within the window.

    Costs at most one short timeout.
    """
    near = _select_within_window([DueEntry(schedule_id, moment) for schedule_id, moment in dues if moment])
    due_window().add(near, moved=True)
    return bool(near)


def announce_fired(found: Sequence[DueEntry], upcoming: Sequence[DueEntry]) -> None:
    """Announce without an `Announcer`, on the caller's thread: for firing outside beat."""
    due_window().add(_select_within_window(upcoming))


def _select_within_window(dues: Sequence[DueEntry]) -> list[DueEntry]:
    until = datetime.now(UTC) + WINDOW_LENGTH
    return [due for due in dues if due.due_at <= until]


def refill_window() -> int:
    """Fill the window from Postgres in pages and return the number of entries; raises if Redis fails."""
    with redis.Redis.from_url(
        settings.PUNCTUAL_REDIS_URL,
        socket_timeout=REFILL_TIMEOUT_SECONDS,
        socket_connect_timeout=REFILL_TIMEOUT_SECONDS,
    ) as client:
        token = uuid4().hex
        client.set(FILLING_KEY, token, ex=FILL_TTL_SECONDS)
        now = database_now()
        filled_until = _parse_filled_until(_get_value(client, FILLED_KEY), now.timestamp())
        if filled_until is None or filled_until <= now + REREAD_LENGTH:
            written = _fill_range(client, now, now + WINDOW_LENGTH)
        else:
            written = _fill_range(client, now, now + REREAD_LENGTH) + _fill_range(
                client, filled_until, now + WINDOW_LENGTH
            )
        if _get_value(client, FILLING_KEY) is not None:
            # Otherwise Redis was flushed meanwhile, and the first pages are gone.
            client.set(FILLED_KEY, f"{token}:{(now + WINDOW_LENGTH).timestamp()}", ex=FILL_TTL_SECONDS)
    return written


def _parse_filled_until(filled: object, now: float) -> datetime | None:
    """Parse until when the window is filled; None: there is no valid mark."""
    if not isinstance(filled, bytes):
        return None
    try:
        until = float(filled.split(b":")[1])
    except (IndexError, ValueError):
        return None
    # A mark further ahead than the window's length is invalid, for example after the clock was set back.
    latest = now + (WINDOW_LENGTH + REREAD_LENGTH).total_seconds()
    return datetime.fromtimestamp(until, UTC) if now < until <= latest else None


def _get_value(client: redis.Redis, key: str) -> object:
    pipeline = client.pipeline(transaction=False)
    pipeline.get(key)
    return _execute_pipeline(pipeline)[0]


def _execute_pipeline(pipeline: Pipeline) -> list[object]:
    """Return each command's response; None where the key holds the wrong type."""
    responses: list[object] = pipeline.execute(raise_on_error=False)
    for response in responses:
        if isinstance(response, redis.RedisError) and not str(response).startswith(WRONG_TYPE_ERROR):
            raise response
    return [None if isinstance(response, redis.RedisError) else response for response in responses]


def _fill_range(client: redis.Redis, after: datetime, until: datetime) -> int:
    written, last = 0, DueEntry(_FIRST_ID, after)
    while page := _read_page(last, until):
        _add_entries(client, page, moved=False)
        written, last = written + len(page), page[-1]
    return written


def _read_page(after: DueEntry, until: datetime) -> list[DueEntry]:
    bounds = {"after": after.due_at, "after_id": after.schedule_id, "until": until, "limit": PAGE_SCHEDULES}
    return sql.fetch("read_window_page", bounds, DueEntry)


def _add_entries(client: redis.Redis, dues: Iterable[DueEntry], *, moved: bool) -> bool:
    minutes: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for due in dues:
        score = _to_score(due.due_at)
        minutes[_to_minute(score)][str(due.schedule_id)] = score
    if wrong_type := _write_entries(client, minutes, moved=moved):
        # Entries of others were overwritten with these keys: the window is invalid until the next refill.
        client.delete(FILLED_KEY, *(f"{KEY_PREFIX}{minute}" for minute in wrong_type))
        _write_entries(client, {minute: minutes[minute] for minute in wrong_type}, moved=moved)
    return True


def _write_entries(client: redis.Redis, minutes: Mapping[int, Mapping[str, float]], *, moved: bool) -> list[int]:
    """Write the entries and return the minutes whose keys hold the wrong type."""
    pipeline = client.pipeline(transaction=False)
    for minute, members in minutes.items():
        # Announcements of a schedule may arrive out of order: the later time is the newer one.
        pipeline.zadd(f"{KEY_PREFIX}{minute}", members, gt=not moved)
        pipeline.expireat(f"{KEY_PREFIX}{minute}", (minute + 1) * 60 + KEY_RETENTION_SECONDS)
    responses = _execute_pipeline(pipeline)
    return [minute for minute, added in zip(minutes, responses[::2], strict=True) if added is None]


def _to_score(moment: datetime) -> float:
    """Round up to milliseconds, so that beat never wakes too early."""
    return math.ceil(moment.timestamp() * 1000) / 1000


def _to_minute(moment: float) -> int:
    return int(moment // 60)
