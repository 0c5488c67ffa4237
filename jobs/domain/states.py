"""The states of an execution and the one table of legal moves between them.

`jobs.execution.transitions`, the only writer of states, takes both ends of every move from this table.
A test compares `docs/state_machine.md` with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class State(StrEnum):
    BLOCKED = "blocked"  # waiting for its dependencies
    READY = "ready"  # waiting to be placed on a worker
    BACKING_OFF = "backing_off"  # waiting for the time of its next try
    QUEUED = "queued"  # placed on a worker that has not claimed it yet
    CLAIMED = "claimed"  # claimed by the worker, which fetches its files
    RUNNING = "running"  # its sandbox is up
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    MISSED = "missed"  # never ran: catch-up dropped its instant
    SKIPPED = "skipped"  # never ran, because of a dependency, the overlap policy or a full backlog


class Move(StrEnum):
    UNBLOCK = "unblock"
    SKIP = "skip"
    PLACE = "place"
    WAKE = "wake"
    CLAIM = "claim"
    START = "start"
    SUCCEED = "succeed"
    FAIL = "fail"
    TIME_OUT = "time_out"
    RETRY = "retry"
    LOSE = "lose"
    RELEASE = "release"
    CANCEL = "cancel"
    EXPIRE = "expire"


# States of a new execution; the others are reached by moves.
INITIAL = frozenset({State.BLOCKED, State.READY, State.MISSED, State.SKIPPED})

# Held by a worker: they count against its capacity and carry its incarnation.
ACTIVE = frozenset({State.QUEUED, State.CLAIMED, State.RUNNING})
STARTED = frozenset({State.CLAIMED, State.RUNNING})
WAITING = frozenset({State.BLOCKED, State.READY, State.BACKING_OFF})

# The phase of an execution that a worker holds; the phase of any other is its state. Only phases are indexed, so that a
# move within `ACTIVE` writes no index.
HELD = "held"

TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.MISSED, State.SKIPPED})
UNFINISHED_STATES = [state.value for state in State if state not in TERMINAL]

MOVES: dict[Move, tuple[frozenset[State], State]] = {
    Move.UNBLOCK: (frozenset({State.BLOCKED}), State.READY),
    Move.SKIP: (frozenset({State.BLOCKED}), State.SKIPPED),
    Move.PLACE: (frozenset({State.READY}), State.QUEUED),
    Move.WAKE: (frozenset({State.BACKING_OFF}), State.READY),
    Move.CLAIM: (frozenset({State.QUEUED}), State.CLAIMED),
    Move.START: (frozenset({State.CLAIMED}), State.RUNNING),
    Move.SUCCEED: (frozenset({State.RUNNING}), State.SUCCEEDED),
    Move.FAIL: (STARTED, State.FAILED),
    Move.TIME_OUT: (frozenset({State.RUNNING}), State.TIMED_OUT),
    Move.RETRY: (STARTED, State.BACKING_OFF),
    Move.LOSE: (STARTED, State.READY),
    Move.RELEASE: (ACTIVE, State.READY),
    Move.CANCEL: (WAITING | ACTIVE, State.CANCELLED),
    Move.EXPIRE: (WAITING | {State.QUEUED}, State.TIMED_OUT),
}

LEGAL: frozenset[tuple[State, State]] = frozenset(
    (source, target) for sources, target in MOVES.values() for source in sources
)


def sorted_values(states: Iterable[State]) -> list[str]:
    """Return plain strings in a fixed order, for SQL and migrations."""
    return sorted(state.value for state in states)


def source_states(move: Move) -> list[str]:
    """Return the states that a move starts from, as SQL parameters."""
    return sorted_values(MOVES[move][0])


def target_state(move: Move) -> str:
    return MOVES[move][1].value


class Reason(StrEnum):
    """Why an attempt, or an execution that never ran, finished."""

    EXIT = "exit"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"
    ARTIFACT_MISMATCH = "artifact_mismatch"
    ARTIFACT_UNAVAILABLE = "artifact_unavailable"
    SANDBOX_ERROR = "sandbox_error"
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105 - not a password
    DEADLINE = "deadline"  # its deadline passed while it waited or ran
    CATCH_UP = "catch_up"  # missed: too old when firing resumed
    OVERLAP = "overlap"  # skipped: other executions of its job were unfinished
    BACKLOG = "backlog"  # skipped: too many executions of its job were waiting
    DEPENDENCY = "dependency"  # skipped: an upstream's outcome did not meet the condition
