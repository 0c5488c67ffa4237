"""The due window: sorted sets in Redis, one a minute, that say when something is due within the next hour.

It says when to wake, never what to do: what is due Postgres decides. So whatever is lost or wrong here costs beat at
most its longest sleep; and a window that was not filled since Redis lost it, or failed us, is not believed at all.
Scores are the database's clock.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID, uuid4

import redis
from django.conf import settings

from jobs import sql
from jobs.wakeups import HurriedRedis, hurried_redis

logger = logging.getLogger(__name__)

KEY = "punctual:due:"
FILLED = "punctual:due:filled"
FILLING = "punctual:due:filling"
WINDOW = timedelta(hours=1)
# What a refill reads again though it was filled before: an announcement that got lost is found before it is due.
REREAD = timedelta(minutes=3)
# Without a refill for this long (it comes every minute) the window is no longer believed.
BELIEVED_SECONDS = 200
KEPT_SECONDS = 300
PAGE = 5000
REFILL_TIMEOUT_SECONDS = 5.0
# Work found at most this long before the announced moment is what was announced.
TOLERANCE_SECONDS = 0.05
MAX_PENDING_BATCHES = 1000
REPORT_SECONDS = 60.0
_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Due:
    schedule_id: UUID
    moment: datetime


@dataclass(frozen=True, slots=True)
class Announced:
    """What the window says: when something is due next; None: nothing that concerns this sleep."""

    moment: float | None


class DatabaseClock:
    """The database's time without asking it: an offset to our own clock, measured now and then."""

    def __init__(self) -> None:
        self._offset = 0.0
        self.uncertainty = 0.0

    def measure(self) -> None:
        asked = time.monotonic()
        (answer,) = sql.fetch("window_clock", {}, _Now)
        answered = time.monotonic()
        self._offset = answer.now.timestamp() - (asked + answered) / 2
        self.uncertainty = (answered - asked) / 2

    def now(self) -> float:
        return time.monotonic() + self._offset


@dataclass(frozen=True, slots=True)
class _Now:
    now: datetime


class DueWindow:
    def __init__(self, connection: HurriedRedis) -> None:
        self._redis = connection
        self.unannounced = 0  # schedules that beat found due although the window had not said so
        self.lost = 0  # announcements that Redis did not take
        self.believed = 0  # times that beat slept by its word
        self.doubted = 0  # times that beat had to ask Postgres instead
        self._in_doubt = False
        self._doubted: object = None
        self._lock = threading.Lock()

    def add(self, dues: Sequence[Due], *, moved: bool = False) -> None:
        """Never fails. A later moment of a schedule replaces an earlier one; `moved`: any moment does."""
        if dues and not self._redis.attempt(lambda client: _add(client, dues, moved=moved)):
            self.lost += len(dues)
            self.doubt()

    def next_after(self, moment: float) -> Announced | None:
        """One seek. None: the window is not to be believed, ask Postgres."""

        def peek(client: redis.Redis) -> list[object]:
            # As one: a wipe in between would make an empty window look filled.
            pipeline = client.pipeline(transaction=True)
            pipeline.get(FILLED)
            for minute in (_minute(moment), _minute(moment) + 1):
                pipeline.zrangebyscore(f"{KEY}{minute}", f"({moment:.6f}", "+inf", start=0, num=1, withscores=True)
            return pipeline.execute()

        answer = self._redis.attempt(peek)
        if answer is None:
            self.doubted += 1
            self.doubt()
            return None
        filled, *found = answer
        with self._lock:
            if self._in_doubt:
                self._in_doubt, self._doubted = False, filled
        if filled is None or filled == self._doubted:
            self.doubted += 1
            return None
        self.believed += 1
        return Announced(
            min((entries[0][1] for entries in found if isinstance(entries, list) and entries), default=None)
        )

    def doubt(self) -> None:
        """Something may be missing: the window is not believed until it was filled anew."""
        with self._lock:
            self._in_doubt = True

    def counts(self) -> dict[str, int]:
        return {
            "due_window_believed": self.believed,
            "due_window_doubted": self.doubted,
            "due_window_unannounced": self.unannounced,
            "due_window_lost": self.lost,
        }

    def report(self) -> None:
        """The last word of a beat that ends: how right the window was."""
        logger.info(
            "The due window was believed %d times and doubted %d times;"
            " %d schedules were due unannounced, %d announcements were lost",
            self.believed,
            self.doubted,
            self.unannounced,
            self.lost,
        )

    def count_unannounced(self, found: Sequence[Due]) -> int:
        """Of these, found due before the window had said so, those that nobody has announced since either."""

        def scores(client: redis.Redis) -> list[float | None]:
            pipeline = client.pipeline(transaction=False)
            for due in found:
                pipeline.zscore(f"{KEY}{_minute(_score(due.moment))}", str(due.schedule_id))
            return pipeline.execute()

        answer = self._redis.attempt(scores) or []
        count = sum(score is None or score < _score(due.moment) for due, score in zip(found, answer, strict=False))
        self.unannounced += count
        return count


class Announcer:
    """Writes what firing announces on a thread of its own, so that a slow Redis never delays firing."""

    def __init__(self, window: DueWindow) -> None:
        self._window = window
        self._pending: deque[tuple[list[Due], Sequence[Due]]] = deque()
        self._asleep: tuple[float, float] | None = None
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

    @contextmanager
    def listening(self) -> Iterator[Ear]:
        """What this thread fires meanwhile is announced here."""
        ear = Ear(self)
        token = _ear.set(ear)
        try:
            yield ear
        finally:
            _ear.reset(token)

    def expect(self, asleep_from: float | None, wake_at: float | None) -> None:
        """Beat goes to sleep because the window says so; None: because Postgres does, which proves no window wrong."""
        self._asleep = None if asleep_from is None else (asleep_from, math.inf if wake_at is None else wake_at)

    def put(self, found: Sequence[Due], upcoming: Sequence[Due]) -> None:
        asleep_from, wake_at = self._asleep or (math.inf, math.inf)
        # What was due before the sleep already is no matter of the window: somebody else held it.
        early = [due for due in found if asleep_from < _score(due.moment) < wake_at - TOLERANCE_SECONDS]
        if len(self._pending) >= MAX_PENDING_BATCHES:
            self._window.lost += len(upcoming)
            self._window.doubt()
            return
        self._pending.append((early, upcoming))
        self._wanted.set()

    def pending_after(self, moment: float) -> float | None:
        """The earliest of what is announced and not yet in Redis."""
        scores = (_score(due.moment) for _, upcoming in list(self._pending) for due in upcoming)
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
                # Only now: until it is in Redis, beat finds it here.
                self._pending.popleft()

    def _report(self) -> None:
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            logger.info("The due window was wrong: %d schedules were due unannounced so far", self._window.unannounced)


@dataclass(slots=True)
class Ear:
    announcer: Announcer
    heard: bool = False  # whether firing has announced anything


_ear: ContextVar[Ear | None] = ContextVar("ear", default=None)


@lru_cache(maxsize=1)
def due_window() -> DueWindow:
    return DueWindow(hurried_redis())


def announce(dues: Iterable[tuple[UUID, datetime | None]]) -> None:
    """For whoever has committed new moments of schedules; costs a request one short time-out at most."""
    due_window().add(_within([Due(schedule_id, moment) for schedule_id, moment in dues if moment]), moved=True)


def announce_settled(found: Sequence[Due], upcoming: Sequence[Due]) -> None:
    """For firing, after its commit: what it found due, and when each of that is due next."""
    if (ear := _ear.get()) is not None:
        ear.heard = True
        ear.announcer.put(found, _within(upcoming))
    else:
        due_window().add(_within(upcoming))


def _within(dues: Sequence[Due]) -> list[Due]:
    until = datetime.now(UTC) + WINDOW
    return [due for due in dues if due.moment <= until]


def refill() -> int:
    """Fills the window from Postgres, in pages; returns how many moments it wrote. A Redis that fails is an error."""
    with redis.Redis.from_url(
        settings.PUNCTUAL_REDIS_URL,
        socket_timeout=REFILL_TIMEOUT_SECONDS,
        socket_connect_timeout=REFILL_TIMEOUT_SECONDS,
    ) as client:
        token = uuid4().hex
        client.set(FILLING, token, ex=BELIEVED_SECONDS)
        now = sql.fetch("window_clock", {}, _Now)[0].now
        filled_until = _filled_until(client)
        if filled_until is None or filled_until <= now + REREAD:
            written = _fill(client, now, now + WINDOW)
        else:
            written = _fill(client, now, now + REREAD) + _fill(client, filled_until, now + WINDOW)
        if client.get(FILLING) is not None:
            # Else Redis was wiped meanwhile, and with it what the first pages held.
            client.set(FILLED, f"{token}:{(now + WINDOW).timestamp()}", ex=BELIEVED_SECONDS)
    return written


def _filled_until(client: redis.Redis) -> datetime | None:
    filled = client.get(FILLED)
    return datetime.fromtimestamp(float(filled.split(b":")[1]), UTC) if isinstance(filled, bytes) else None


def _fill(client: redis.Redis, after: datetime, until: datetime) -> int:
    written, last = 0, Due(_FIRST_ID, after)
    while page := _page(last, until):
        _add(client, page, moved=False)
        written, last = written + len(page), page[-1]
    return written


def _page(after: Due, until: datetime) -> list[Due]:
    bounds = {"after": after.moment, "after_id": after.schedule_id, "until": until, "limit": PAGE}
    return sql.fetch("window_page", bounds, Due)


def _add(client: redis.Redis, dues: Iterable[Due], *, moved: bool) -> bool:
    minutes: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for due in dues:
        score = _score(due.moment)
        minutes[_minute(score)][str(due.schedule_id)] = score
    pipeline = client.pipeline(transaction=False)
    for minute, members in minutes.items():
        # Announcements of one schedule may overtake each other: the later moment is the newer one.
        pipeline.zadd(f"{KEY}{minute}", members, gt=not moved)
        pipeline.expireat(f"{KEY}{minute}", (minute + 1) * 60 + KEPT_SECONDS)
    pipeline.execute()
    return True


def _score(moment: datetime) -> float:
    """In milliseconds, rounded up: who comes too early finds nothing."""
    return math.ceil(moment.timestamp() * 1000) / 1000


def _minute(moment: float) -> int:
    return int(moment // 60)
