"""Another benchmark of this tree and of an older commit, in turns on one machine.

`.venv/bin/python -m benchmarks.in_turns COMMIT [--turns 3] end_to_end --rounds 1 --history 0`

Each turn is a command of its own, of that tree and with its benchmarks: it starts its own engines, beat and worker. The
older commit is checked out into a temporary git worktree and uses the same installed packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.verdict import machine

ROOT = Path(__file__).resolve().parents[1]
Figures = Mapping[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("benchmark")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the benchmark, which both trees must know")
    options = parser.parse_args()
    about = machine()
    seen: dict[str, list[Figures]] = {"now": [], "then": []}
    with _checked_out(options.commit) as older:
        for turn in range(options.turns):
            # The second may find a warmer machine.
            trees = [("then", older), ("now", ROOT)]
            for name, tree in trees if turn % 2 == 0 else reversed(trees):
                print(f"turn {turn + 1} of {options.turns}: {name}", file=sys.stderr, flush=True)
                seen[name].append(_run(tree, options.benchmark, options.options))
    now, then = (_medians(turns) for turns in seen.values())
    result = {"benchmark": "in_turns", "of": options.benchmark, "then": options.commit, "turns": options.turns, **about}
    print(json.dumps({**result, "figures": _compare(now, then)}))
    return 0


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="punctual-benchmark-") as parent:
        tree = Path(parent) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def _run(tree: Path, benchmark: str, options: Sequence[str]) -> Figures:
    """Missed targets exit with 1 and print their figures all the same."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *options]
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.strip():
        raise SystemExit(f"benchmarks.{benchmark} of {tree} ended with {done.returncode} and printed nothing.")
    return dict(_numbers(json.loads(done.stdout.splitlines()[-1])))


def _numbers(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _numbers(part, f"{path}.{name}" if path else name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def _medians(turns: Sequence[Figures]) -> Figures:
    """Of the figures that every turn has."""
    return {name: median(turn[name] for turn in turns) for name in turns[0] if all(name in turn for turn in turns)}


def _compare(now: Figures, then: Figures) -> dict[str, dict[str, float]]:
    """What both trees measure; the bounds of targets are no measurements."""
    both = [name for name in now if name in then and not name.endswith((".at_least", ".at_most"))]
    return {
        name: {"then": round(then[name], 3), "now": round(now[name], 3)}
        | ({"ratio": round(now[name] / then[name], 3)} if then[name] else {})
        for name in both
    }


if __name__ == "__main__":
    sys.exit(main())
