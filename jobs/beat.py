"""Celery beat's scheduler: fire, wake, place, publish, reap, then sleep until the next due instant or a wake-up.

Any number of beats run this at once and none is special. Each stage is a step that does its work in transactions of its
own; an error in one is logged and the others go on, because beat must not end while Postgres or Redis is away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import uuid4

from django.conf import settings
from django_celery_beat.schedulers import DatabaseScheduler

from jobs import conf
from jobs.broker import BrokerSender
from jobs.due_window import Announcer, DatabaseClock, DueWindow
from jobs.publisher import Publisher
from jobs.services import transitions
from jobs.services.database import pooled
from jobs.services.duties import hold_duty
from jobs.services.firing import FireResult, fire_due_schedules, seconds_until_next_due
from jobs.services.placement import place_ready_executions
from jobs.services.reaping import reap_lost_workers
from jobs.wakeups import HurriedRedis, WakeListener

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
LOOK_AGAIN_SECONDS = 0.02
AT_ONCE_SECONDS = 0.001
CLOCK_SECONDS = 10.0


class Scheduler(DatabaseScheduler):  # type: ignore[misc]  # django-celery-beat has no types
    def setup_schedule(self) -> None:
        """Called for the instance that runs, not for the one that Celery makes to print its banner.

        The stock version writes default entries over what was edited in the admin; ours are seeded by a migration.
        """
        self._identity = uuid4()
        self._sender = BrokerSender(self.app)
        self._publisher = Publisher(self._sender.send)
        self._publisher.start()
        self._listener = WakeListener(settings.PUNCTUAL_REDIS_URL)
        self.window = DueWindow(HurriedRedis(settings.PUNCTUAL_REDIS_URL))
        self._announcer = Announcer(self.window)
        self._announcer.start()
        self._clock = DatabaseClock()
        self._next_clock = 0.0
        self._changed = True
        self._asked_at = 0.0
        self._due_by_postgres: float | None = None
        self._next_reap = 0.0
        self._closing = threading.Event()
        # On a thread of its own: the stock code waits for the broker, and what is due must not wait with it.
        self._system_tasks = threading.Thread(target=self._run_system_tasks, name="system tasks", daemon=True)
        self._in_charge_until = 0.0

    def tick(self, *args: Any, **kwargs: Any) -> float:
        if self._system_tasks.ident is None:
            self._system_tasks.start()
        with pooled():
            sleep = self._stages()
        if sleep > 0:
            self._changed |= self._listener.wait(sleep)
        return 0

    def close(self) -> None:
        """May be called twice, and by a signal in the middle of a tick: what the tick waits on is left to the exit."""
        self._closing.set()
        if self._system_tasks.is_alive() and self._system_tasks is not threading.current_thread():
            self._system_tasks.join(timeout=1)
        self._publisher.stop()
        self._announcer.stop()
        self._sender.close()
        super().close()

    def _stages(self) -> float:
        """One round; returns how long there is nothing to do."""
        if time.monotonic() >= self._next_clock:
            self._next_clock = time.monotonic() + CLOCK_SECONDS
            self._guard("clock", self._clock.measure)
        looked_at = self._clock.now() - self._clock.uncertainty
        fired = self._guard("fire", self._fire)
        woken = self._guard("wake", transitions.wake_backed_off)
        placed = self._guard("place", place_ready_executions)
        if placed and placed.placed:
            self._publisher.notify()
        if time.monotonic() >= self._next_reap:
            self._next_reap = time.monotonic() + conf.REAP_SECONDS
            self._guard("reap", reap_lost_workers)
        if (fired and fired.more) or (placed and placed.more):
            return 0
        if placed and placed.contended:
            return LOOK_AGAIN_SECONDS
        longest = float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)
        if fired is None or woken is None or placed is None:
            # What failed is still due and would fail again at once: nothing to hammer.
            return longest
        due = self._next_due(looked_at, longest)
        if due is not None and due <= 0 and not fired.schedules and not woken:
            # Somebody else holds what is due: another beat, which is about to settle it.
            return LOOK_AGAIN_SECONDS
        return longest if due is None else min(longest, max(due, 0.0))

    def _fire(self) -> FireResult:
        with self._announcer.listening():
            fired = fire_due_schedules()
        if fired.schedules and not self._announcer.heard():
            # When that is due next, only Postgres knows.
            self.window.doubt()
        return fired

    def _next_due(self, looked_at: float, longest: float) -> float | None:
        """Seconds until something is due; None: nothing is to come. The window knows it, or else Postgres does."""
        pending = self._announcer.pending_after(looked_at)
        announced = self.window.next_after(looked_at)
        if announced is None:
            self._announcer.expect(None, None)
            return self._guard("next due", seconds_until_next_due)
        by_window = min((at for at in (announced.moment, pending) if at is not None), default=None)
        self._announcer.expect(looked_at, by_window)
        # Retries are not in the window. Whoever makes one wakes beat; should that get lost, the longest sleep finds it.
        if self._changed or time.monotonic() - self._asked_at >= longest:
            self._changed, self._asked_at = False, time.monotonic()
            seconds = self._guard("next due", seconds_until_next_due)
            self._due_by_postgres = None if seconds is None else self._clock.now() + seconds
        if self._due_by_postgres is not None and self._due_by_postgres <= looked_at:
            self._due_by_postgres = None
        moments = [at for at in (by_window, self._due_by_postgres) if at is not None]
        # What came due during this round was not held by anybody: no need to look away for a while.
        return max(min(moments) - self._clock.now(), AT_ONCE_SECONDS) if moments else None

    def _run_system_tasks(self) -> None:
        while not self._closing.wait(conf.SYSTEM_TICK_SECONDS):
            with pooled():
                self._guard("system tasks", self._tick_system_tasks)

    def _tick_system_tasks(self) -> None:
        # By the clock: a beat that stood still for a lease does not know who was in charge meanwhile.
        asked_at = time.monotonic()
        in_charge_before, self._in_charge_until = asked_at < self._in_charge_until, 0.0
        held = hold_duty("system tasks", self._identity)
        if not held or not in_charge_before:
            # What another beat did since is in the database: read it anew, and write nothing of our own over it.
            # The same after an error, which leaves the stock heap without the entry it was sending.
            self._dirty.clear()
            self._initial_read = True
            self._heap = None
        if held:
            for _ in range(conf.SYSTEM_TASKS_A_TICK):
                if super().tick() != 0:
                    break
            self._in_charge_until = asked_at + conf.DUTY_LEASE_SECONDS

    def _ensure_connected(self) -> Any:
        """The stock version retries a hundred times inside a tick."""
        return self.connection.ensure_connection(max_retries=1, interval_start=0, timeout=3)

    @staticmethod
    def _guard(name: str, stage: Callable[[], Result]) -> Result | None:
        try:
            return stage()
        except Exception:
            logger.exception("Beat's stage '%s' failed and is tried again", name)
            return None
