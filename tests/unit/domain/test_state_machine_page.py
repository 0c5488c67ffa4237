"""The page docs/state_machine.md lists exactly the states and moves of the table."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.domain.states import ACTIVE, INITIAL, MOVES, TERMINAL, WAITING, State

PAGE = (Path(__file__).parents[3] / "docs/state_machine.md").read_text(encoding="utf-8")


def names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def test_page_lists_every_state_with_its_kind() -> None:
    kinds = dict(re.findall(r"^\| `(\w+)` \| (waiting|active|terminal) \|", PAGE, re.MULTILINE))
    groups = {"waiting": WAITING, "active": ACTIVE, "terminal": TERMINAL}
    assert kinds == {state.value: kind for kind, states in groups.items() for state in states}
    assert set(kinds) == {state.value for state in State}


def test_page_lists_every_move_with_its_ends() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`[^|]*`) \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert {name: (names(sources), target) for name, sources, target in rows} == {
        move.value: ({source.value for source in sources}, target.value) for move, (sources, target) in MOVES.items()
    }


def test_page_lists_the_initial_states() -> None:
    (sentence,) = re.findall(r"^An execution starts as (.*?);", PAGE, re.MULTILINE)
    assert names(sentence) == {state.value for state in INITIAL}
