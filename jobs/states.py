"""The states of an execution and the only table of legal moves between them.

`services/transitions.py` is the only writer of states; it takes both ends of every move from here.
`docs/state_machine.md` is compared with this table by a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class State(StrEnum):
    BLOCKED = "blocked"  # waits for its dependencies
    READY = "ready"  # waits for a place on a worker
    BACKING_OFF = "backing_off"  # waits for the time of its next try
    QUEUED = "queued"  # placed on a worker, which has not taken it yet
    CLAIMED = "claimed"  # taken by the worker, which fetches its artifact
    RUNNING = "running"  # its sandbox is up
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    MISSED = "missed"  # never run: its instant was not caught up with
    SKIPPED = "skipped"  # never run: a dependency or the overlap policy said so


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


# What a new execution may start as: everything else is reached by a move.
INITIAL = frozenset({State.BLOCKED, State.READY, State.MISSED, State.SKIPPED})

# Held by a worker: these count against its capacity and carry its incarnation.
ACTIVE = frozenset({State.QUEUED, State.CLAIMED, State.RUNNING})
STARTED = frozenset({State.CLAIMED, State.RUNNING})
WAITING = frozenset({State.BLOCKED, State.READY, State.BACKING_OFF})

TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.MISSED, State.SKIPPED})

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


def values(states: Iterable[State]) -> list[str]:
    """Plain strings in a fixed order, for SQL and for migrations."""
    return sorted(state.value for state in states)


def sources(move: Move) -> list[str]:
    """The states that a move starts from, as SQL parameters."""
    return values(MOVES[move][0])


def target(move: Move) -> str:
    return MOVES[move][1].value


class Reason(StrEnum):
    """Why an attempt, or an execution that never ran, ended."""

    EXIT = "exit"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"
    ARTIFACT_MISMATCH = "artifact_mismatch"
    ARTIFACT_UNAVAILABLE = "artifact_unavailable"
    SANDBOX_ERROR = "sandbox_error"
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105 - a word, and no password
    DEADLINE = "deadline"  # waited or ran until its deadline had passed
    CATCH_UP = "catch_up"  # missed: too old when something could fire again
    OVERLAP = "overlap"  # skipped: others of its job had not ended yet
    BACKLOG = "backlog"  # skipped: too many of its job wait already
    DEPENDENCY = "dependency"  # skipped: an upstream did not end as its condition says
