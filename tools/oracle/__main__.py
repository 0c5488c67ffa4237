"""Compares every minute of 2020-2037 in every zone: `python -m tools.oracle --full`."""

import argparse
import sys
import time

from tools.oracle.comparing import CRONS, compare, ranges_near_shifts
from tools.oracle.minutes import FIRST, LAST, distinct_zones


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.oracle", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every minute, not only three days around each shift")
    parser.add_argument("--zones", type=int, metavar="N", help="only the first N zones that differ, most shifts first")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no other zone after so many seconds")
    options = parser.parse_args()
    started = time.monotonic()
    classes = sorted(distinct_zones().items(), key=lambda item: -len(item[0]))
    chosen = classes[: options.zones]
    print(f"{sum(len(names) for _, names in classes)} zones, {len(classes)} that differ in 2020-2037", flush=True)
    done = names_done = combinations = minutes = 0
    differences = []
    for stretches, names in chosen:
        if options.seconds is not None and time.monotonic() - started > options.seconds:
            break
        ranges = [(FIRST, LAST)] if options.full else list(ranges_near_shifts(stretches))
        for first, last in ranges:
            for expression in CRONS:
                difference = compare(names[0], expression, stretches, first, last)
                if difference is not None:
                    differences.append(difference)
                    print(difference, flush=True)
            combinations += len(CRONS)
            minutes += (last - first) * len(CRONS)
        done, names_done = done + 1, names_done + len(names)
        elapsed = time.monotonic() - started
        print(f"{elapsed:6.0f} s  {done}/{len(chosen)}  {names[0]} and {len(names) - 1} alike", flush=True)
    print(
        f"{done} of {len(classes)} differing zones ({names_done} names), {len(CRONS)} expressions, "
        f"{combinations:,} combinations, {minutes:,} minutes: {len(differences)} differences"
    )
    return 1 if differences or not done else 0


if __name__ == "__main__":
    sys.exit(main())
