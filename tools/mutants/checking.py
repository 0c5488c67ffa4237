"""Runs the check that must catch a mutant, and says what caught it.

A check that breaks off proves nothing: a mutant is caught only by a test that failed or by an audit with differences.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.patches import KILLING, Mutant
from tools.mutants.scratch import Ended, copy_of_the_tree, run_in

KILLING_SECONDS = 45.0
# Start, settling what is left, the quiet moment and the audit; on a busy machine.
KILLING_LIMIT_SECONDS = 3 * KILLING_SECONDS + 240.0
PYTEST_LIMIT_SECONDS = 300.0
# Where a beat is hit is up to chance: a mutant that got away is hunted twice more.
HUNTS = 3
UNEXPLAINED = ("absent", "overdue", "extra", "duplicate", "early", "uncomputable", "unarmed")
OUTPUT_LINES = 30


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    caught: bool
    by: str
    seconds: float


def check_unmutated(checks: Sequence[tuple[str, ...]]) -> list[Verdict]:
    """Every check once, on the tree as it is: none may find anything."""
    tests = sorted({word for check in checks if check != KILLING for word in check[1:]})
    together = ([KILLING] if KILLING in checks else []) + ([("pytest", *tests)] if tests else [])
    verdicts = []
    with copy_of_the_tree() as tree:
        for check in together:
            began = time.monotonic()
            ended = _run(check, tree)
            clean = ended.code == 0
            by = "clean" if clean else f"is not clean: {_finding(check, ended) or _tail(ended)}"
            verdicts.append(Verdict(check[0], clean, by, time.monotonic() - began))
    return verdicts


def hunt(mutant: Mutant) -> Verdict:
    began = time.monotonic()
    caught, by = False, ""
    for _ in range(HUNTS if mutant.check == KILLING else 1):
        with copy_of_the_tree() as tree:
            refusal = mutant.apply(tree)
            ended = None if refusal else _run(mutant.check, tree)
        if ended is None:
            by = f"does not apply: {refusal.strip()}"
            break
        finding = _finding(mutant.check, ended)
        caught = ended.code == 1 and bool(finding)
        by = finding if caught else "SURVIVED" if ended.code == 0 else f"the check broke off: {_tail(ended)}"
        if caught:
            break
    return Verdict(mutant.name, caught, by, time.monotonic() - began)


def _run(check: tuple[str, ...], tree: Path) -> Ended:
    if check == KILLING:
        words = ["tools.killing", "--json", "--seconds", f"{KILLING_SECONDS:g}"]
        return run_in(tree, words, seconds=KILLING_LIMIT_SECONDS)
    return run_in(tree, ["pytest", "-q", "--tb=line", "--maxfail=3", *check[1:]], seconds=PYTEST_LIMIT_SECONDS)


def _finding(check: tuple[str, ...], ended: Ended) -> str:
    if check != KILLING:
        failed = re.findall(r"^FAILED \S*::(\w+)", ended.output, re.MULTILINE)
        return ", ".join(dict.fromkeys(failed))
    reports = [line for line in ended.output.splitlines() if line.startswith('{"seed"')]
    if not reports:
        return ""
    audit = json.loads(reports[-1])["audit"]
    found = [f"{audit[what]} {what}" for what in UNEXPLAINED if audit[what]]
    return f"the auditor: {', '.join(found)}" if found else ""


def _tail(ended: Ended) -> str:
    how = "it took too long" if ended.code is None else f"exit code {ended.code}"
    return "\n".join([how, *ended.output.splitlines()[-OUTPUT_LINES:]])
