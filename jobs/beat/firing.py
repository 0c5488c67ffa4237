"""Fire due schedules, and compute how long beat may sleep: `OnTimeFiring` in each tick, `BacklogStage` in parallel."""

from __future__ import annotations

import logging
import time

from django.conf import settings

from jobs.beat.stage import Stage, run_safely
from jobs.db.due_window import Announcer, DatabaseClock, DueWindow
from jobs.domain import limits
from jobs.execution import transitions
from jobs.scheduling.firing import FireResult, Lane, fire_due_schedules, fire_held_schedules, read_next_due
from jobs.scheduling.held_schedules import HeldSchedules

logger = logging.getLogger(__name__)

RECHECK_SECONDS = 0.02
MAX_EMPTY_RECHECKS = 10
MIN_SLEEP_SECONDS = 0.001
CLOCK_SYNC_SECONDS = 10.0


class BacklogStage(Stage):
    """Fires late and held schedules, and due ones as well when one batch was not enough for them."""

    def __init__(self, held: HeldSchedules, announcer: Announcer, place: Stage) -> None:
        super().__init__("fire", self.step)
        self._held = held
        self._announcer = announcer
        self._place = place
        self._rounds = 0

    def step(self) -> float:
        self._rounds += 1
        late_first = self._rounds % limits.FIRE_LATE_FIRST_ROUNDS == 0
        announce = self._announcer.put
        fired = fire_held_schedules(self._held, announce=announce)
        fired += fire_due_schedules(held=self._held, late_first=late_first, announce=announce)
        if fired.fired:
            self._place.notify()
        longest = float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)
        held_for = self._held.seconds_until_due()
        return 0 if fired.more else min(longest, longest if held_for is None else max(held_for, MIN_SLEEP_SECONDS))


class OnTimeFiring:
    """Fires the schedules that are due now and wakes the retries that are due."""

    def __init__(
        self, held: HeldSchedules, window: DueWindow, announcer: Announcer, place: Stage, backlog: Stage
    ) -> None:
        self._held = held
        self._window = window
        self._announcer = announcer
        self._place = place
        self._backlog = backlog
        self._clock = DatabaseClock()
        self._next_clock_sync = 0.0
        self._was_woken = True
        self._read_at = 0.0
        self._due_by_postgres: float | None = None
        self._retry_at: float | None = None  # when the next retry is due, by the database's clock; None: unknown
        self._ahead_seconds: float | None = None
        self._empty_rechecks = 0

    def on_wakeup(self) -> None:
        """Look for new retries in the next step; an execution may be ready, too."""
        self._was_woken, self._retry_at = True, None
        self._place.notify()

    def step(self) -> float:
        """Fire one batch; return for how many seconds nothing is due."""
        if time.monotonic() >= self._next_clock_sync:
            self._next_clock_sync = time.monotonic() + CLOCK_SYNC_SECONDS
            run_safely("clock", self._clock.measure)
        started_at = self._clock.now() - self._clock.uncertainty
        fired = run_safely("fire", self._fire)
        if fired and fired.fired:
            self._place.notify()
        if fired and fired.postponed:
            self._backlog.notify()
        woken = run_safely("wake", self._wake_retries)
        if woken:
            self._place.notify()
        if fired and fired.more:
            self._backlog.notify()
            return 0
        longest = float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)
        if fired is None or woken is None:
            # What failed is still due and would fail again at once.
            return longest
        due = self._seconds_until_due(started_at, longest)
        if due is not None and due <= 0 and not fired.schedules and not woken:
            return self._recheck_seconds(longest)
        self._empty_rechecks = 0
        return longest if due is None else min(longest, max(due, 0.0))

    def _fire(self) -> FireResult:
        held = len(self._held.ids())
        try:
            return fire_due_schedules(lanes=[Lane.ON_TIME], held=self._held, announce=self._announcer.put)
        except Exception:
            if len(self._held.ids()) <= held:
                raise
            # The schedules that failed are held now, so this beat keeps firing the others on time.
            logger.exception("Firing failed; the schedules that failed are retried apart from the others")
            return FireResult(postponed=1)

    def _wake_retries(self) -> int:
        if self._retry_at is not None and self._clock.now() + self._clock.uncertainty < self._retry_at:
            return 0
        # The next one is unknown, until it is read.
        self._was_woken, self._retry_at = True, None
        return transitions.wake_backed_off()

    def _recheck_seconds(self, longest: float) -> float:
        """Return how long to wait for another beat that holds due schedules: longer each time, for it may be stuck."""
        seconds = min(RECHECK_SECONDS * (1 << self._empty_rechecks), longest)
        self._empty_rechecks = min(self._empty_rechecks + 1, MAX_EMPTY_RECHECKS)
        return min(seconds, max(self._ahead_seconds or longest, MIN_SLEEP_SECONDS))

    def _seconds_until_due(self, started_at: float, longest: float) -> float | None:
        """Ask the due window, or Postgres if the window is not valid. None: nothing is due in the future."""
        pending = self._announcer.pending_after(started_at)
        announced = self._window.next_after(started_at)
        if announced is None:
            self._announcer.expect(None, None)
            return self._read_seconds_until_due()
        by_window = min((at for at in (announced.due_at, pending) if at is not None), default=None)
        self._announcer.expect(started_at, by_window)
        # Retries are not in the window: a new one wakes beat, and the longest sleep finds it if that wake-up is lost.
        if self._was_woken or time.monotonic() - self._read_at >= longest:
            self._was_woken, self._read_at = False, time.monotonic()
            seconds = self._read_seconds_until_due()
            self._due_by_postgres = None if seconds is None else self._clock.now() + seconds
        if self._due_by_postgres is not None and self._due_by_postgres <= started_at:
            self._due_by_postgres = None
        instants = [at for at in (by_window, self._due_by_postgres) if at is not None]
        # What came due during this step was held by no other beat: fire again without a recheck pause.
        return max(min(instants) - self._clock.now(), MIN_SLEEP_SECONDS) if instants else None

    def _read_seconds_until_due(self) -> float | None:
        next_due = run_safely("next due", read_next_due)
        self._ahead_seconds = None if next_due is None else next_due.ahead_seconds
        self._retry_at = None if next_due is None else self._clock.now() + next_due.retry_seconds
        return None if next_due is None else next_due.seconds
