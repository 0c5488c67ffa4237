"""Everything that is checked before a change lands, in one command, with a summary at the end.

`./punctual test` runs it all, in lanes where stages do not mind each other, and shows each stage when it ended;
`./punctual test unit lint` runs only the named stages and shows them as they go; what follows `--` goes to pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree  # the file it reads was written by our own pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# Stages of their own, for other lanes: integration is the longest.
API, SANDBOX = "tests/integration/api", "tests/integration/sandbox"
PYTEST = {
    "unit": ("tests/unit",),
    "architecture": ("tests/architecture",),
    "integration": ("tests/integration", f"--ignore={SANDBOX}", f"--ignore={API}"),
    "api": (API,),
    "sandbox": (SANDBOX,),
    "concurrency": ("tests/concurrency",),
    "hostile": ("tests/hostile",),
    "acceptance": ("tests/acceptance",),
    "outage": ("tests/outage",),
    "faults": ("tests/faults",),
    "deaths": ("tests/deaths",),
}
STAGES: dict[str, tuple[str, ...]] = {
    "lint": (f"{BIN}/ruff", "check", "."),
    "format": (f"{BIN}/ruff", "format", "--check", "."),
    "types": (f"{BIN}/mypy",),
    "imports": (f"{BIN}/lint-imports",),
    **{stage: (sys.executable, "-m", "pytest", *arguments) for stage, arguments in PYTEST.items()},
}
# These look at clocks and at processes that die, and mostly wait: they have the machine to themselves, after all else.
PATIENT = ["outage", "faults", "deaths"]
# Of about the same length beside each other; what is in none of them is another.
LANES = [["integration"], ["api", "concurrency", "hostile"], ["acceptance"]]


@dataclass(frozen=True, slots=True)
class Result:
    stage: str
    passed: int
    failed: int
    seconds: float


def main(arguments: list[str]) -> int:
    names, extra = _split(arguments)
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"Unknown stage: {', '.join(unknown)}. There are: {', '.join(STAGES)}.", file=sys.stderr)
        return 2
    if missing := _missing(names or list(STAGES)):
        print(missing, file=sys.stderr)
        return 2
    results = [_run(stage, extra) for stage in names] if names else _run_all(extra)
    _print_summary(results)
    return 1 if any(result.failed for result in results) or not sum(result.passed for result in results) else 0


def _missing(stages: list[str]) -> str:
    """What nothing here can install, and some stages need; better said now than after minutes."""
    needed = {
        "slirp4netns": {"unit", "api", "integration", "sandbox", "acceptance"},
        "zsh": {"integration"},
        "fish": {"integration"},
    }
    missing = [name for name, by in needed.items() if by & set(stages) and not shutil.which(name)]
    if not missing:
        return ""
    return f"Missing: {', '.join(missing)}; install your distribution's packages (apt-get install {' '.join(missing)})."


def _run_all(extra: list[str]) -> list[Result]:
    placed = {*PATIENT, *(stage for lane in LANES for stage in lane)}
    others = [stage for stage in STAGES if stage not in placed]
    results = _run_beside([*LANES, others], extra)
    results |= _run_beside([[stage] for stage in PATIENT], extra)
    return [results[stage] for stage in STAGES]


def _run_beside(lanes: list[list[str]], extra: list[str]) -> dict[str, Result]:
    print("Running " + " beside ".join(", ".join(lane) for lane in lanes) + ".", flush=True)
    with ThreadPoolExecutor(len(lanes)) as pool:
        ended = pool.map(lambda lane: [_run(stage, extra, quietly=True) for stage in lane], lanes)
        return {result.stage: result for lane in ended for result in lane}


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _run(stage: str, extra: list[str], *, quietly: bool = False) -> Result:
    title = f"\n== {stage} " + "=" * max(0, 76 - len(stage))
    if not quietly:
        print(title, flush=True)
    command, started = STAGES[stage], time.monotonic()
    with TemporaryDirectory(prefix="punctual-suite-") as scratch:
        report = Path(scratch) / "report.xml"
        tested = "pytest" in command
        if tested:
            command = (*command, f"--junitxml={report}", *extra)
        environment = {name: value for name, value in os.environ.items() if not _belongs_to_a_stack(name)}
        # Where compiled code may not be kept, each of hundreds of processes would compile all of ours anew.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        output = Path(scratch) / "output"
        with output.open("wb") as file:
            shown = file if quietly else None
            code = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=shown, stderr=shown, check=False
            ).returncode
        if quietly:
            print(title, output.read_text(encoding="utf-8", errors="replace"), sep="\n", end="", flush=True)
        passed, failed = _count(report) if tested else (int(code == 0), int(code != 0))
    if code != 0 and not failed:
        failed = 1
    return Result(stage, passed, failed, time.monotonic() - started)


def _belongs_to_a_stack(name: str) -> bool:
    """A running stack's settings must not leak into the checks: they bring their own."""
    return bool(re.match(r"PUNCTUAL_|DATABASE_URL|REDIS_URL|S3_|SECRET_KEY|FLOWER_|DJANGO_", name))


def _count(report: Path) -> tuple[int, int]:
    if not report.exists():
        return 0, 1
    total = failed = 0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):  # noqa: S314 - see the import
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0)) + int(suite.get("skipped", 0))
    return total - failed, failed


def _print_summary(results: list[Result]) -> None:
    print("\n== summary " + "=" * 69)
    for result in results:
        mark = "FAILED" if result.failed else "ok"
        print(f"{result.stage:14}{result.passed:6} passed {result.failed:4} failed {result.seconds:8.1f} s   {mark}")
    print(f"\n{sum(r.passed for r in results)} passed, {sum(r.failed for r in results)} failed", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
