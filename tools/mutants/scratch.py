"""Copies of the working tree, in which checks run and patches are applied; the tree itself is never touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.suite import _configures_a_stack

ROOT = Path(__file__).resolve().parents[2]
END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int | None  # None: it took too long
    output: str


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """With what is not committed yet; without what git ignores, above all compiled files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with tempfile.TemporaryDirectory(prefix="punctual-mutant-", ignore_cleanup_errors=True) as directory:
        tree = Path(directory) / "tree"
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield tree


def run_in(tree: Path, words: Sequence[str], *, seconds: float) -> Ended:
    """A module of Python in that tree, with all that it starts, which ends with it."""
    child = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if not _configures_a_stack(name)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate(timeout=END_SECONDS)
        return Ended(None, output)
    return Ended(child.returncode, output)
