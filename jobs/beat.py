"""Celery beat's scheduler: fires what is due and sleeps until the next instant or a wake-up.

Placing, publishing, reaping, webhooks and system tasks are stages beside it, on threads of their own: what is due waits
for none of them. Any number of beats run this at once and none is special. An error in one part is logged and the
others go on, because beat must not end while Postgres or Redis is away.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

from django.conf import settings
from django_celery_beat.schedulers import DatabaseScheduler

from jobs import conf
from jobs.broker import BrokerSender
from jobs.due_window import Announcer, DatabaseClock, DueWindow
from jobs.messages import Publication, worker_queue
from jobs.services import transitions
from jobs.services.counting import add_counts
from jobs.services.database import pooled
from jobs.services.deadlines import expire_overdue
from jobs.services.dependencies import SweepResult, sweep_blocked
from jobs.services.duties import SYSTEM_TASKS, claim_tick, hold_duty
from jobs.services.firing import FireResult, fire_due_schedules, seconds_until_next_due
from jobs.services.placement import place_ready_executions, read_pools
from jobs.services.publishing import probe_suspects, republish_unclaimed
from jobs.services.reaping import ReapResult, reap_lost_workers
from jobs.services.webhook_deliveries import Deliverer
from jobs.stage import Stage
from jobs.wakeups import HurriedRedis, WakeListener, hurried_redis

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
# A stage comes back from Postgres a dozen times for one firing, and each time waits so long for a busy one to let go.
SWITCH_SECONDS = 0.0005
LOOK_AGAIN_SECONDS = 0.02
AT_ONCE_SECONDS = 0.001
CLOCK_SECONDS = 10.0
# When workers are full, room is made every few milliseconds: a pass for each would cost more than what it places.
PLACE_REST_SECONDS = 0.01
COUNT_SECONDS = 10.0
DELIVER_REST_SECONDS = 0.1
# Longer than all stages take to stop one after the other.
CLOSE_SECONDS = 20.0
REPUBLISH_LOOK_SECONDS = 1.0
MAX_OUTBOX_BATCHES = 1000


def _is_idle(worker_id: UUID) -> bool:
    """Whether nothing lies in the worker's queue; False as well if Redis does not say."""
    return hurried_redis().attempt(lambda client: client.llen(worker_queue(worker_id))) == 0


class TickNotOurs(Exception):
    """A system task was changed, or sent by another beat, since we looked."""


class Scheduler(DatabaseScheduler):  # type: ignore[misc]  # django-celery-beat has no types
    def setup_schedule(self) -> None:
        """Called for the instance that runs, not for the one that Celery makes to print its banner.

        The stock version writes default entries over what was edited in the admin; ours are seeded by a migration.
        """
        sys.setswitchinterval(SWITCH_SECONDS)
        self._identity = uuid4()
        self._sender = BrokerSender(self.app)
        self._firing_along = Stage("fire", self._fire_along)
        self._placing = Stage("place", self._place)
        self._publishing = Stage("publish", self._publish)
        self._delivering = Stage("webhooks", self._deliver)
        self._deliverer = Deliverer(on_answer=self._delivering.notify)
        # What does not fit, or fails to be sent, is found unclaimed and sent again.
        self._outbox: deque[Sequence[Publication]] = deque(maxlen=MAX_OUTBOX_BATCHES)
        self._next_look = 0.0
        self._pools: Sequence[str] = ()
        self._next_pools = 0.0
        self._stages = (
            self._firing_along,
            self._placing,
            self._publishing,
            Stage("reap", self._reap),
            Stage("system tasks", self._tick_system_tasks),
            self._delivering,
        )
        self._listener = WakeListener(settings.PUNCTUAL_REDIS_URL, on_room=self._hear_of_room)
        self.window = DueWindow(HurriedRedis(settings.PUNCTUAL_REDIS_URL))
        self._announcer = Announcer(self.window)
        self._announcer.start()
        self._swept = SweepResult()
        self._counted: dict[str, int] = {}
        self._next_count = 0.0
        self._clock = DatabaseClock()
        self._next_clock = 0.0
        self._changed = True
        self._asked_at = 0.0
        self._due_by_postgres: float | None = None
        self._in_charge_until = 0.0

    def tick(self, *args: Any, **kwargs: Any) -> float:
        for stage in self._stages:
            stage.start()
        with pooled():
            sleep = self._fire_and_look_ahead()
        if sleep > 0 and self._listener.wait(sleep):
            self._changed = True
            self._placing.notify()
        return 0

    def close(self) -> None:
        """May be called twice, and by a signal in the middle of a tick.

        So it is done on another thread: the tick may hold a lock or a connection that this needs, and would wait for
        itself for ever.
        """
        leaving = threading.Thread(target=self._leave, name="close", daemon=True)
        leaving.start()
        leaving.join(CLOSE_SECONDS)
        super().close()

    def _leave(self) -> None:
        for stage in self._stages:
            stage.stop()
        for stage in self._stages:
            stage.join()
        self._announcer.stop()
        with pooled():
            self._guard("count", self._count)
            self._guard("webhooks", self._deliverer.settle)
        self.window.report()
        self._sender.close()

    def _fire_and_look_ahead(self) -> float:
        """One round; returns how long there is nothing to do."""
        if time.monotonic() >= self._next_clock:
            self._next_clock = time.monotonic() + CLOCK_SECONDS
            self._guard("clock", self._clock.measure)
        looked_at = self._clock.now() - self._clock.uncertainty
        fired = self._guard("fire", self._fire)
        if fired and fired.fired:
            self._placing.notify()
        woken = self._guard("wake", transitions.wake_backed_off)
        if woken:
            self._placing.notify()
        if fired and fired.more:
            self._firing_along.notify()
            return 0
        longest = float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)
        if fired is None or woken is None:
            # What failed is still due and would fail again at once: nothing to hammer.
            return longest
        due = self._next_due(looked_at, longest)
        if due is not None and due <= 0 and not fired.schedules and not woken:
            # Somebody else holds what is due: another beat, which is about to settle it.
            return LOOK_AGAIN_SECONDS
        return longest if due is None else min(longest, max(due, 0.0))

    def _fire(self) -> FireResult:
        with self._announcer.listening() as ear:
            fired = fire_due_schedules()
        if fired.schedules and not ear.heard:
            # When that is due next, only Postgres knows.
            self.window.doubt()
        return fired

    def _fire_along(self) -> float:
        """A second hand when much is due: one computes while the other waits for Postgres."""
        fired = self._fire()
        if fired.fired:
            self._placing.notify()
        return 0 if fired.more else math.inf

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

    def _place(self) -> float:
        if time.monotonic() >= self._next_pools:
            # A new pool is a rare thing, and a pass is not.
            self._pools = read_pools()
            self._next_pools = time.monotonic() + float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)
        placed = place_ready_executions(pools=self._pools)
        if placed.publications:
            self._outbox.append(placed.publications)
            self._publishing.notify()
        if placed.more:
            return 0
        if placed.full:
            self._placing.rest(PLACE_REST_SECONDS)
        return LOOK_AGAIN_SECONDS if placed.contended else float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)

    def _publish(self) -> float:
        """What this beat has placed; and, looking by itself, what any beat has placed and nobody taken."""
        while self._outbox:
            self._sender.send(self._outbox.popleft())
        if time.monotonic() >= self._next_look and republish_unclaimed(self._sender.send) < conf.PUBLISH_BATCH_MESSAGES:
            probe_suspects(self._sender.send, _is_idle)
            self._next_look = time.monotonic() + REPUBLISH_LOOK_SECONDS
        return max(0.0, self._next_look - time.monotonic())

    def _hear_of_room(self) -> None:
        """Something has ended: there may be room for another, and somebody who wants to know."""
        self._placing.notify()
        self._delivering.notify()

    def _deliver(self) -> float:
        done = self._deliverer.step()
        # Ends come by the hundred: one look serves many, and what is found is worth another soon.
        self._delivering.rest(LOOK_AGAIN_SECONDS if done.sent or done.settled else DELIVER_REST_SECONDS)
        return float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)

    def _reap(self) -> float:
        # Nobody is to blame for what never arrived.
        blame = self._listener.hearing_seconds > conf.UNCLAIMED_SECONDS
        reaped = self._guard("reap", lambda: reap_lost_workers(blame=blame)) or ReapResult()
        swept = self._guard("sweep", lambda: sweep_blocked(after=self._swept.after))
        self._swept = swept or self._swept
        expired = self._guard("expire", expire_overdue)
        if expired or reaped.executions or reaped.unclaimed or reaped.released or (swept and swept.unblocked):
            self._placing.notify()
        if time.monotonic() >= self._next_count:
            self._next_count = time.monotonic() + COUNT_SECONDS
            self._guard("count", self._count)
        return conf.REAP_SECONDS

    def _count(self) -> None:
        counts = self.window.counts()
        add_counts({name: count - self._counted.get(name, 0) for name, count in counts.items()})
        self._counted = counts

    def _tick_system_tasks(self) -> float:
        # By the clock: a beat that stood still for a lease does not know who was in charge meanwhile.
        asked_at = time.monotonic()
        in_charge_before, self._in_charge_until = asked_at < self._in_charge_until, 0.0
        held = hold_duty(SYSTEM_TASKS, self._identity)
        if not held or not in_charge_before:
            # What another beat did since is in the database: read it anew. The same after an error, which leaves the
            # stock heap without the entry it was sending.
            self._initial_read = True
            self._heap = None
        if held:
            try:
                for _ in range(conf.SYSTEM_TASKS_A_TICK):
                    if super().tick() != 0:
                        break
            except TickNotOurs as error:
                logger.info("%s", error)
                return conf.SYSTEM_TICK_SECONDS
            self._in_charge_until = asked_at + conf.DUTY_LEASE_SECONDS
        return conf.SYSTEM_TICK_SECONDS

    def reserve(self, entry: Any) -> Any:
        """The stock version also notes that the entry has to be saved, which `apply_entry` has done by then."""
        return next(entry)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """The stock version saves after sending, and whatever another beat has saved meanwhile."""
        task = entry.model
        if not claim_tick(task.pk, self._identity, last_run_at=entry.last_run_at, at=task.last_run_at):
            raise TickNotOurs(f"The system task '{entry.name}' was changed or sent by another beat; looking again")
        super().apply_entry(entry, producer=producer)

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
