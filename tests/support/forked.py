"""Run a command in a process forked from one that has already imported its modules, which starts it at once.

The command runs as with `python -m`, with its own streams, environment and exit code. Tests of what is imported start a
new Python instead.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

COMMANDS = Path(__file__).resolve().parents[2] / "punctual_cli" / "commands"
TIMEOUT_SECONDS = 60
STREAMS = ("stdin", "stdout", "stderr")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["workers.remote.command", *(f"punctual_cli.commands.{path.stem}" for path in sorted(COMMANDS.glob("*.py")))]
)


def run_forked(
    module: str, *words: str, environment: Mapping[str, str], directory: Path = Path(), typed: str | None = None
) -> CompletedProcess[str]:
    with TemporaryDirectory() as scratch:
        stdin, stdout, stderr = (Path(scratch) / name for name in STREAMS)
        stdin.write_text(typed or "")
        process = _context.Process(target=_become, args=(module, words, dict(environment), directory, scratch))
        process.start()
        process.join(TIMEOUT_SECONDS)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"{module} {' '.join(words)} took too long: {stderr.read_text()}")
        return CompletedProcess([module, *words], process.exitcode, stdout.read_text(), stderr.read_text())


def _become(module: str, words: tuple[str, ...], environment: dict[str, str], directory: Path, scratch: str) -> None:
    for number, name in enumerate(STREAMS):
        os.dup2(os.open(os.path.join(scratch, name), os.O_RDWR | os.O_CREAT), number)
    sys.stdin = os.fdopen(0)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = [module, *words]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
