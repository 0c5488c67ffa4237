"""The mutants: patches whose first lines say what is wrong and which check must catch it.

    Mutant: Advances schedules in a transaction of its own, before the insert.
    Caught by: killing

The check is `killing`, which is the auditor after beats were killed, or `pytest` with its arguments.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
KILLING = ("killing",)


@dataclass(frozen=True, slots=True)
class Mutant:
    path: Path
    mistake: str
    check: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    def apply(self, tree: Path, *, only_check: bool = False) -> str:
        """Why it does not apply to the tree; empty: it does."""
        command = ["git", "apply", *(["--check"] if only_check else []), str(self.path)]
        return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False).stderr


def read_mutants() -> list[Mutant]:
    return [_read(path) for path in sorted(HERE.glob("*.patch"))]


def _read(path: Path) -> Mutant:
    lines = path.read_text(encoding="utf-8").splitlines()
    mistake, check = (_after(name, line, path) for name, line in zip(("Mutant", "Caught by"), lines, strict=False))
    words = tuple(check.split())
    if words != KILLING and words[0] != "pytest":
        raise ValueError(f"{path.name}: a mutant is caught by killing or by pytest with arguments, not by {check!r}.")
    return Mutant(path, mistake, words)


def _after(name: str, line: str, path: Path) -> str:
    found, _, rest = line.partition(": ")
    if found != name or not rest:
        raise ValueError(f"{path.name}: its first two lines must be 'Mutant: …' and 'Caught by: …'.")
    return rest
