"""The mutants are current: every patch still applies to the tree, names its check, and the check exists."""

from __future__ import annotations

import pytest

from tools.mutants.patches import KILLING, Mutant, read_mutants
from tools.mutants.scratch import ROOT

MUTANTS = read_mutants()
# What the auditor itself must catch after beats were killed, whatever the tests say.
BY_THE_AUDITOR = {"drop_unique_key", "skip_catch_up_sweep", "trust_window_alone", "advance_before_insert"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant: Mutant) -> None:
    assert mutant.apply(ROOT, only_check=True) == ""
    assert mutant.mistake.endswith(".")


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.check != KILLING], ids=lambda mutant: mutant.name)
def test_its_tests_exist(mutant: Mutant) -> None:
    for word in mutant.check[1:]:
        file, _, name = word.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name.rpartition('::')[2]}(" in text, word


def test_killing_has_its_own_mutants() -> None:
    assert {mutant.name for mutant in MUTANTS if mutant.check == KILLING} >= BY_THE_AUDITOR
    assert len(MUTANTS) >= 12
