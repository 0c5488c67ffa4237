"""The table of states and moves is complete and consistent with the groups of states."""

from __future__ import annotations

import pytest

from jobs.domain.states import (
    ACTIVE,
    INITIAL,
    LEGAL,
    MOVES,
    STARTED,
    TERMINAL,
    WAITING,
    Move,
    State,
    sorted_values,
    source_states,
    target_state,
)


def test_every_state_is_in_exactly_one_group() -> None:
    assert set(State) == WAITING | ACTIVE | TERMINAL
    assert len(WAITING) + len(ACTIVE) + len(TERMINAL) == len(State)
    assert STARTED < ACTIVE


def test_every_move_is_in_the_table() -> None:
    assert set(MOVES) == set(Move)


def test_terminal_states_have_no_moves() -> None:
    assert not [move for move, (starts, _) in MOVES.items() if starts & TERMINAL]


def test_every_state_is_reachable() -> None:
    reached = set(INITIAL)
    while more := {end for start, end in LEGAL if start in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_every_state_can_reach_a_terminal_state() -> None:
    ending = set(TERMINAL)
    while more := {start for start, end in LEGAL if end in ending} - ending:
        ending |= more
    assert ending == set(State)


def test_only_place_leads_to_a_worker_and_only_from_ready() -> None:
    into = {(start, end) for start, end in LEGAL if end in ACTIVE and start not in ACTIVE}
    assert into == {(State.READY, State.QUEUED)}


def test_running_requires_a_claim() -> None:
    assert {start for start, end in LEGAL if end is State.RUNNING} == {State.CLAIMED}
    assert {start for start, end in LEGAL if end is State.SUCCEEDED} == {State.RUNNING}


def test_every_unfinished_state_can_be_cancelled() -> None:
    assert MOVES[Move.CANCEL][0] == set(State) - TERMINAL


@pytest.mark.parametrize("move", Move)
def test_move_as_sql_parameters(move: Move) -> None:
    starts, end = MOVES[move]
    assert source_states(move) == sorted(s.value for s in starts)
    assert all(type(s) is str for s in source_states(move))
    assert target_state(move) == end.value


def test_values_are_sorted() -> None:
    assert (
        sorted_values({State.READY, State.BLOCKED})
        == sorted_values([State.BLOCKED, State.READY])
        == ["blocked", "ready"]
    )
