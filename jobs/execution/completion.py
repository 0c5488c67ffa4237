"""Follow-ups in the transaction that finishes executions: fixed delays, dependents, notifications.

The outcome commits even if a follow-up fails: a delay that cannot be computed quarantines its schedule, the sweep of
delays arms one whose schedule is locked, and fan-outs resolve dependents that are too many or that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.domain.worker_protocol import MovedExecution
from jobs.execution import status_cache
from jobs.execution.delays import rearm_delays
from jobs.execution.dependents import resolve_or_defer_dependents


def on_finished(moved: Sequence[MovedExecution]) -> None:
    """Run the follow-ups; every caller of a transition that may finish executions passes its result."""
    # Also for unfinished ones: a cancel was requested, or they went back to the queue.
    status_cache.notify_change(*(m.execution_id for m in moved))
    ended = [m for m in moved if m.ended]
    rearm_delays(ended)
    resolve_or_defer_dependents(ended)
