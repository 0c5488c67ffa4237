"""What follows from the end of executions, in the transaction that ended them: fixed delays, and dependents."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.protocol import Moved
from jobs.services.delays import rearm_delays
from jobs.services.dependencies import resolve_dependents


def settle_endings(moved: Sequence[Moved]) -> None:
    """Everybody who ends executions calls this with what came of it."""
    ended = [m for m in moved if m.ended]
    rearm_delays(ended)
    resolve_dependents(ended)
