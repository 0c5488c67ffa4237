"""What follows from the end of executions, in the transaction that ended them: delays, dependents, who watches."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.protocol import Moved
from jobs.services import status_cache
from jobs.services.delays import rearm_delays
from jobs.services.dependencies import resolve_dependents


def settle_endings(moved: Sequence[Moved]) -> None:
    """Everybody who ends executions calls this with what came of it."""
    # Also of what has not ended: it is to be stopped, or was given back.
    status_cache.tell_change(*(m.execution_id for m in moved))
    ended = [m for m in moved if m.ended]
    rearm_delays(ended)
    resolve_dependents(ended)
