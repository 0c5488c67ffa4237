"""The table of states and moves is whole, and its groups do not contradict it."""

from __future__ import annotations

import pytest

from jobs.states import ACTIVE, INITIAL, LEGAL, MOVES, STARTED, TERMINAL, WAITING, Move, State, sources, target, values


def test_every_state_is_waiting_active_or_terminal_and_only_one_of_them() -> None:
    assert set(State) == WAITING | ACTIVE | TERMINAL
    assert len(WAITING) + len(ACTIVE) + len(TERMINAL) == len(State)
    assert STARTED < ACTIVE


def test_every_move_is_in_the_table() -> None:
    assert set(MOVES) == set(Move)


def test_an_end_is_for_good() -> None:
    assert not [move for move, (starts, _) in MOVES.items() if starts & TERMINAL]


def test_every_state_can_be_reached_from_the_start() -> None:
    reached = set(INITIAL)
    while more := {end for start, end in LEGAL if start in reached} - reached:
        reached |= more
    assert reached == set(State)


def test_from_every_state_that_is_no_end_one_can_be_reached() -> None:
    ending = set(TERMINAL)
    while more := {start for start, end in LEGAL if end in ending} - ending:
        ending |= more
    assert ending == set(State)


def test_only_a_placement_leads_to_a_worker_and_only_from_ready() -> None:
    into = {(start, end) for start, end in LEGAL if end in ACTIVE and start not in ACTIVE}
    assert into == {(State.READY, State.QUEUED)}


def test_a_program_runs_only_after_a_claim() -> None:
    assert {start for start, end in LEGAL if end is State.RUNNING} == {State.CLAIMED}
    assert {start for start, end in LEGAL if end is State.SUCCEEDED} == {State.RUNNING}


def test_everything_unfinished_can_be_cancelled() -> None:
    assert MOVES[Move.CANCEL][0] == set(State) - TERMINAL


@pytest.mark.parametrize("move", Move)
def test_a_move_as_sql_parameters(move: Move) -> None:
    starts, end = MOVES[move]
    assert sources(move) == sorted(s.value for s in starts)
    assert all(type(s) is str for s in sources(move))
    assert target(move) == end.value


def test_values_have_one_order() -> None:
    assert values({State.READY, State.BLOCKED}) == values([State.BLOCKED, State.READY]) == ["blocked", "ready"]
