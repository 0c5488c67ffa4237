"""What runs after what: resolves the dependents of executions that ended, in the transaction that ended them.

A dependent has one execution in a run: created, blocked, when the first of its upstreams ends; decided by the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from jobs import sql
from jobs.models.execution import Trigger
from jobs.services import transitions
from jobs.services.transitions import Moved, NewExecution
from jobs.states import State


@dataclass(frozen=True, slots=True)
class _Dependent:
    job_id: UUID
    run_id: UUID


@dataclass(frozen=True, slots=True)
class _Locked:
    execution_id: UUID


@dataclass(frozen=True, slots=True)
class _Verdict:
    execution_id: UUID
    runs: bool


def resolve_dependents(moved: Sequence[Moved]) -> int:
    """Creates, unblocks or skips what depends on these; a skipped one is an ended one to its own dependents in turn."""
    unblocked = 0
    ended = [m for m in moved if m.ended]
    while ended:
        found = sql.fetch(
            "followers", {"job_ids": [m.job_id for m in ended], "run_ids": [m.run_id for m in ended]}, _Dependent
        )
        followers = list(dict.fromkeys(found))
        if not followers:
            break
        transitions.create_executions(
            [NewExecution(f.job_id, Trigger.DEPENDENCY, state=State.BLOCKED, run_id=f.run_id) for f in followers]
        )
        locked = sql.fetch(
            "lock_dependents",
            {"job_ids": [f.job_id for f in followers], "run_ids": [f.run_id for f in followers]},
            _Locked,
        )
        verdicts = sql.fetch("judge_dependents", {"ids": [row.execution_id for row in locked]}, _Verdict)
        unblocked += len(transitions.unblock([v.execution_id for v in verdicts if v.runs]))
        ended = transitions.skip([v.execution_id for v in verdicts if not v.runs])
    return unblocked
