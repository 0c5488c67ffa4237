"""Applies every mutant to a copy of the tree and runs the check that must catch it: `python -m tools.mutants`.

First the same checks run on the tree as it is, where they must find nothing. Exit code 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import sys

from tools.mutants.checking import Verdict, check_unmutated, hunt
from tools.mutants.patches import read_mutants


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="mutant", help="only these; default: all")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    options = parser.parse_args()
    mutants = read_mutants()
    if unknown := set(options.names) - {mutant.name for mutant in mutants}:
        parser.error(f"there is no mutant {', '.join(sorted(unknown))}; --list names them all")
    chosen = [mutant for mutant in mutants if not options.names or mutant.name in options.names]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}: {mutant.mistake} Caught by {' '.join(mutant.check)}.")
        return 0
    print("The tree as it is:", flush=True)
    verdicts = [_show(verdict) for verdict in check_unmutated([mutant.check for mutant in chosen])]
    if not all(verdict.caught for verdict in verdicts):
        print("The checks must find nothing before they can catch anything.")
        return 1
    print("\nMutants:", flush=True)
    verdicts = [_show(hunt(mutant)) for mutant in chosen]
    caught = sum(verdict.caught for verdict in verdicts)
    print(f"\n{caught} of {len(verdicts)} caught, {sum(verdict.seconds for verdict in verdicts):.0f} s")
    return 0 if verdicts and caught == len(verdicts) else 1


def _show(verdict: Verdict) -> Verdict:
    mark = "ok    " if verdict.caught else "FAILED"
    print(f"{mark} {verdict.name:32}{verdict.seconds:7.1f} s  {verdict.by}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
