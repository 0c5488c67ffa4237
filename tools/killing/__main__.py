"""Kills beats at random moments for minutes, then audits: `python -m tools.killing --minutes 5`.

Exit code 0: everything is explained. 1: the auditor found differences. 2: the run proves nothing.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from benchmarks.laboratory import laboratory

UNEXPLAINED = 1
PROVES_NOTHING = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.killing", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=5.0)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, help="repeats the choices of a run")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of text")
    options = parser.parse_args()
    seconds = options.minutes * 60 if options.seconds is None else options.seconds
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    with laboratory():
        from tools.killing.directing import run_killing

        report = run_killing(seconds=seconds, seed=seed)
    print(report.as_json() if options.json else report.as_text(), flush=True)
    if not report.clean:
        return UNEXPLAINED
    if shortfall := report.shortfall():
        print(shortfall, file=sys.stderr)
        return PROVES_NOTHING
    return 0


if __name__ == "__main__":
    sys.exit(main())
