"""Celery beat's scheduler: fires due schedules and sleeps until the next instant or a wake-up.

The other stages run on threads of their own, so firing never waits for them. System tasks are the periodic tasks of
django-celery-beat; the beat that holds their lease sends them.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any
from uuid import uuid4

from django.conf import settings
from django_celery_beat.schedulers import DatabaseScheduler

from jobs.beat.firing import BacklogStage, OnTimeFiring
from jobs.beat.stage import Stage, run_safely
from jobs.beat.stages import DeliverStage, FanOutStage, PlaceStage, PublishStage, ReapStage, WindowCounters
from jobs.db.due_window import Announcer, DueWindow
from jobs.db.leader_lease import SYSTEM_TASKS, acquire_leader_lease, claim_system_task, release_leader_leases
from jobs.db.transactions import releasing_connection
from jobs.db.wakeups import BestEffortRedis, WakeupListener
from jobs.dispatch.broker import BrokerSender
from jobs.domain import limits
from jobs.scheduling.held_schedules import HeldSchedules

logger = logging.getLogger(__name__)

# Firing returns from Postgres a dozen times for one batch, and may wait this long for a busy thread each time.
SWITCH_INTERVAL_SECONDS = 0.0005
# Longer than all stages take to stop one after the other.
SHUTDOWN_TIMEOUT_SECONDS = 20.0


class SystemTaskChanged(Exception):
    """A system task was changed, or sent by another beat, since this beat read it."""


class Scheduler(DatabaseScheduler):  # type: ignore[misc]  # django-celery-beat has no types
    def setup_schedule(self) -> None:
        """Build the stages. Celery calls this for the instance that runs, not for the one that prints its banner.

        The stock version overwrites edits of the admin with default entries; a migration seeds ours.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        self._identity = uuid4()
        self._leader_until = 0.0
        self._sender = BrokerSender(self.app)
        self._listener = WakeupListener(settings.PUNCTUAL_REDIS_URL, on_capacity_freed=self._on_capacity_freed)
        self.window = DueWindow(BestEffortRedis(settings.PUNCTUAL_REDIS_URL))
        self._counters = WindowCounters(self.window)
        self._announcer = Announcer(self.window)
        held = HeldSchedules()
        self._publish = PublishStage(self._sender, self._listener, self._identity)
        self._place = PlaceStage(self._publish)
        self._backlog = BacklogStage(held, self._announcer, self._place)
        self._firing = OnTimeFiring(held, self.window, self._announcer, self._place, self._backlog)
        self._reap = ReapStage(self._place, self._listener, self._identity, self._counters)
        self._deliver = DeliverStage()
        self._stages = (
            self._backlog,
            self._place,
            self._publish,
            self._reap,
            FanOutStage(self._place),
            Stage("system tasks", self._tick_system_tasks),
            self._deliver,
        )
        self._announcer.start()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        for stage in self._stages:
            stage.start()
        with releasing_connection():
            sleep = self._firing.step()
        if sleep > 0 and self._listener.wait(sleep):
            self._firing.on_wakeup()
        return 0

    def close(self) -> None:
        """Stop on another thread; may be called twice, and by a signal in the middle of a tick.

        The interrupted tick may hold a lock or a connection that stopping needs: on this thread it would deadlock.
        """
        closing = threading.Thread(target=self._stop, name="close", daemon=True)
        closing.start()
        closing.join(SHUTDOWN_TIMEOUT_SECONDS)

    def _stop(self) -> None:
        for stage in self._stages:
            stage.stop()
        for stage in self._stages:
            stage.join()
        self._announcer.stop()
        with releasing_connection():
            run_safely("count", self._counters.store)
            run_safely("webhooks", self._deliver.settle)
            run_safely("release leases", lambda: release_leader_leases(self._identity))
            run_safely("write system tasks", super().close)
        self.window.report()
        self._sender.close()

    def _on_capacity_freed(self) -> None:
        """An execution has finished: others may be placed, and webhooks may be due."""
        self._place.notify()
        self._deliver.notify()

    def _tick_system_tasks(self) -> float:
        # By the monotonic clock: a beat frozen for a lease does not know which beat led meanwhile.
        asked_at = time.monotonic()
        was_leader, self._leader_until = asked_at < self._leader_until, 0.0
        is_leader = acquire_leader_lease(SYSTEM_TASKS, self._identity)
        if not is_leader or not was_leader:
            # Another beat may have sent tasks since: read them from the database again. After an error as well, which
            # leaves the stock heap without the entry it was sending.
            self._initial_read = True
            self._heap = None
        if is_leader:
            try:
                for _ in range(limits.MAX_SYSTEM_TASKS_PER_TICK):
                    if super().tick() != 0:
                        break
            except SystemTaskChanged as error:
                logger.info("%s", error)
                return limits.SYSTEM_TICK_SECONDS
            self._leader_until = asked_at + limits.LEADER_LEASE_SECONDS
        return limits.SYSTEM_TICK_SECONDS

    def reserve(self, entry: Any) -> Any:
        """Return the next entry; the stock version also marks it for saving, which `apply_entry` has done by then."""
        return next(entry)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Claim the task, then send it; the stock version saves after sending, over what another beat has saved."""
        task = entry.model
        if not claim_system_task(task.pk, self._identity, last_run_at=entry.last_run_at, at=task.last_run_at):
            raise SystemTaskChanged(
                f"The system task '{entry.name}' was changed or sent by another beat; reading it again"
            )
        super().apply_entry(entry, producer=producer)

    def _ensure_connected(self) -> Any:
        """Try once; the stock version retries a hundred times inside a tick."""
        return self.connection.ensure_connection(max_retries=1, interval_start=0, timeout=3)
