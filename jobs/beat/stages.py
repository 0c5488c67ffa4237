"""Beat's stages after firing: publish, place, reap, fan out, deliver. Each step is bounded; see `Stage`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

from django.conf import settings

from jobs.beat.stage import Stage, run_safely
from jobs.db.due_window import DueWindow
from jobs.db.leader_lease import REAPING, REPUBLISHING, acquire_leader_lease
from jobs.db.wakeups import WakeupListener, best_effort_redis
from jobs.dispatch.broker import BrokerSender
from jobs.dispatch.placement import place_ready_executions, read_pools
from jobs.dispatch.publishing import probe_suspects, republish_unclaimed
from jobs.dispatch.scan_cursor import ScanProgress
from jobs.domain import limits
from jobs.domain.messages import Publication, worker_queue
from jobs.execution.deadlines import expire_overdue
from jobs.execution.delays import ArmResult, arm_idle_delays
from jobs.execution.dependents import SweepResult, sweep_blocked
from jobs.execution.fan_outs import resolve_fan_outs
from jobs.execution.parking import ParkingSweepResult, sweep_parked
from jobs.fleet.reaping import ReapResult, reap_lost_workers, write_reaper_stamp
from jobs.notifications.webhooks.deliveries import Deliverer
from jobs.telemetry.metrics import increment_counters

# After a pass that another beat's locks cut short, and after one that delivered webhooks.
RETRY_SECONDS = 0.02
# After a pass that could not scan everything that waits and placed nothing.
SCAN_FURTHER_SECONDS = 0.1
# When workers are full, capacity is freed every few milliseconds: a pass for each would cost more than it places. So
# placing rests for a multiple of what the pass took, which is longer where the machine is busy.
PLACE_REST_SHARE = 1.0
PLACE_MIN_REST_SECONDS = 0.006
PLACE_MAX_REST_SECONDS = 0.03
METRICS_INTERVAL_SECONDS = 10.0
DELIVER_MIN_INTERVAL_SECONDS = 0.1
REPUBLISH_INTERVAL_SECONDS = 1.0
MAX_OUTBOX_BATCHES = 1000


class PublishStage(Stage):
    """Sends what this beat has placed; one beat at a time sends again what any beat placed and no worker claimed."""

    def __init__(self, sender: BrokerSender, listener: WakeupListener, identity: UUID) -> None:
        super().__init__("publish", self.step)
        self._sender = sender
        self._listener = listener
        self._identity = identity
        # A batch that does not fit, or that fails to be sent, is found unclaimed and sent again.
        self._outbox: deque[Sequence[Publication]] = deque(maxlen=MAX_OUTBOX_BATCHES)
        self._next_republish = 0.0

    def put(self, batch: Sequence[Publication]) -> None:
        self._outbox.append(batch)
        self.notify()

    def step(self) -> float:
        while self._outbox:
            self._sender.send(self._outbox.popleft())
        if time.monotonic() >= self._next_republish and not self.republish():
            self._next_republish = time.monotonic() + REPUBLISH_INTERVAL_SECONDS
        return max(0.0, self._next_republish - time.monotonic())

    def republish(self) -> bool:
        """Return whether there may be more to send at once."""
        # A beat that cannot send leaves the lease to one that can.
        if not self._listener.connected_seconds or not _acquire_lease(REPUBLISHING, self._identity):
            return False
        if republish_unclaimed(self._sender.send) >= limits.PUBLISH_BATCH_MESSAGES:
            return True
        probe_suspects(self._sender.send, _is_queue_empty)
        return False


class PlaceStage(Stage):
    """Places ready executions on workers and hands them to the publish stage."""

    def __init__(self, publish: PublishStage) -> None:
        super().__init__("place", self.step)
        self._publish = publish
        self._pools: Sequence[str] = ()
        self._next_pools = 0.0
        self._resume: Mapping[str, ScanProgress] = {}

    def step(self) -> float:
        if time.monotonic() >= self._next_pools:
            # Pools change rarely, and passes are frequent.
            self._pools = read_pools()
            self._next_pools = time.monotonic() + float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)
        began_at = time.monotonic()
        placed = place_ready_executions(pools=self._pools, resume=self._resume)
        self._resume = placed.resume
        if placed.publications:
            self._publish.put(placed.publications)
        if placed.more:
            return 0
        if placed.full:
            self.delay_next(compute_rest_seconds(time.monotonic() - began_at))
        if placed.contended:
            return RETRY_SECONDS
        return SCAN_FURTHER_SECONDS if placed.more_to_scan else float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)


def compute_rest_seconds(pass_seconds: float) -> float:
    """Return how long placing rests after a pass that left no capacity."""
    return min(max(PLACE_REST_SHARE * pass_seconds, PLACE_MIN_REST_SECONDS), PLACE_MAX_REST_SECONDS)


class WindowCounters:
    """Adds what the due window has counted since the last call to the counters in Postgres."""

    def __init__(self, window: DueWindow) -> None:
        self._window = window
        self._stored: dict[str, int] = {}

    def store(self) -> None:
        counts = self._window.counts()
        increment_counters({name: count - self._stored.get(name, 0) for name, count in counts.items()})
        self._stored = counts


class ReapStage(Stage):
    """Moves on what would otherwise wait for ever; one beat at a time does it, the others only stamp their presence."""

    def __init__(self, place: Stage, listener: WakeupListener, identity: UUID, counters: WindowCounters) -> None:
        super().__init__("reap", self.step)
        self._place = place
        self._listener = listener
        self._identity = identity
        self._counters = counters
        self._next_metrics = 0.0
        self._swept = SweepResult()
        self._armed = ArmResult()
        self._swept_parked = ParkingSweepResult()

    def step(self) -> float:
        more = False
        if run_safely("acquire the reaping lease", lambda: _acquire_lease(REAPING, self._identity)):
            more = self._rescue_executions()
        else:
            run_safely("stamp", write_reaper_stamp)
        if time.monotonic() >= self._next_metrics:
            self._next_metrics = time.monotonic() + METRICS_INTERVAL_SECONDS
            run_safely("count", self._counters.store)
        return 0 if more else limits.REAP_INTERVAL_SECONDS

    def _rescue_executions(self) -> bool:
        """Return whether there may be more to do at once."""
        # No worker becomes suspect for messages that Redis lost.
        mark_suspects = self._listener.connected_seconds > limits.UNCLAIMED_TIMEOUT_SECONDS
        reaped = run_safely("reap", lambda: reap_lost_workers(mark_suspects=mark_suspects)) or ReapResult()
        swept = run_safely("sweep", lambda: sweep_blocked(after=self._swept.after))
        self._swept = swept or self._swept
        self._armed = run_safely("delays", lambda: arm_idle_delays(after=self._armed.after)) or self._armed
        parked = run_safely("sweep parked", lambda: sweep_parked(after=self._swept_parked.after))
        self._swept_parked = parked or ParkingSweepResult()
        expired = run_safely("expire", expire_overdue)
        if (
            expired
            or self._swept_parked.unparked
            or reaped.executions
            or reaped.unclaimed
            or reaped.released
            or (swept and swept.unblocked)
        ):
            self._place.notify()
        return reaped.more or expired == limits.FINISH_BATCH_EXECUTIONS


class FanOutStage(Stage):
    """Resolves, page by page, the dependents that are too many for the transaction that finished their upstream."""

    def __init__(self, place: Stage) -> None:
        super().__init__("fan out", self.step)
        self._place = place

    def step(self) -> float:
        resolved = resolve_fan_outs()
        if resolved.unblocked:
            self._place.notify()
        return 0 if resolved.more else limits.REAP_INTERVAL_SECONDS


class DeliverStage(Stage):
    """Delivers webhooks."""

    def __init__(self) -> None:
        super().__init__("webhooks", self.step)
        self._deliverer = Deliverer(on_answer=self.notify)

    def step(self) -> float:
        delivered = self._deliverer.step()
        # Executions finish by the hundred: one step serves many, and a step that found some is worth another soon.
        self.delay_next(RETRY_SECONDS if delivered.sent or delivered.settled else DELIVER_MIN_INTERVAL_SECONDS)
        return float(settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS)

    def settle(self) -> None:
        """Store the answers that have arrived."""
        self._deliverer.settle()


def _acquire_lease(duty: str, identity: UUID) -> bool:
    """Acquire the lease of work that one beat at a time does; two at once do no harm, only the work twice."""
    return acquire_leader_lease(duty, identity, limits.RESCUE_LEASE_SECONDS)


def _is_queue_empty(worker_id: UUID) -> bool:
    """Return False also if Redis does not answer."""
    return best_effort_redis().try_call(lambda client: client.llen(worker_queue(worker_id))) == 0
