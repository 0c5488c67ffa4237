"""Run every check of the project in one command, with a summary at the end.

`./punctual test` runs all stages, several beside each other, and prints each when it has finished.
`./punctual test unit lint` runs the named stages only, one after the other, and prints as they go.
Arguments after `--` go to pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree  # the file it reads was written by our own pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TUN = Path("/dev/net/tun")
TESTS = ROOT / "tests"
# How many parts run beside each other: more than cores, because many tests wait for processes and clocks.
LANES = 3
SLOWEST_SHOWN = 10
# Names the directory of the migrated database that each pytest process copies.
TEMPLATE_VARIABLE = "PUNCTUAL_TEST_TEMPLATE"


@dataclass(frozen=True, slots=True)
class Part:
    """One process: a tool, or pytest over some directories."""

    stage: str
    command: tuple[str, ...]

    @property
    def is_pytest(self) -> bool:
        return "pytest" in self.command


@dataclass(frozen=True, slots=True)
class Result:
    stage: str
    passed: int
    failed: int
    seconds: float


def _pytest(stage: str, *paths: str, ignored: Sequence[str] = ()) -> Part:
    ignores = (f"--ignore={path}" for path in ignored)
    return Part(stage, (sys.executable, "-m", "pytest", f"--durations={SLOWEST_SHOWN}", *paths, *ignores))


def _split(stage: str, directory: str, *shares: Sequence[str], ignored: Sequence[str] = ()) -> list[Part]:
    """Return one part for each share of the directory's entries, and one for all other entries."""
    named = [[f"{directory}/{entry}" for entry in share] for share in shares]
    rest = _pytest(stage, directory, ignored=[*ignored, *(path for paths in named for path in paths)])
    return [*(_pytest(stage, *paths) for paths in named), rest]


API, SANDBOX = "tests/integration/api", "tests/integration/workers/sandbox"
# Of each stage, and of all stages, the longest part comes first: what is left at the end is short.
PARTS = [
    *_split(
        "acceptance",
        "tests/acceptance",
        ["test_two_beats.py", "test_redis_restarts.py", "test_slow_clients.py", "test_greedy_users.py"],
        ["test_contract.py", "test_rest_workers.py", "test_examples.py", "test_scarce.py"],
    ),
    *_split(
        "integration",
        "tests/integration",
        ["execution", "dispatch", "definitions", "fleet"],
        ["scheduling", "verify", "beat", "db"],
        ignored=[API, SANDBOX],
    ),
    *_split("api", API, ["framework", "openapi"]),
    _pytest("unit", "tests/unit"),
    _pytest("sandbox", SANDBOX),
    _pytest("concurrency", "tests/concurrency"),
    _pytest("hostile", "tests/hostile"),
    Part("types", (f"{BIN}/mypy",)),
    _pytest("architecture", "tests/architecture"),
    Part("lint", (f"{BIN}/ruff", "check", ".")),
    Part("format", (f"{BIN}/ruff", "format", "--check", ".")),
    Part("imports", (f"{BIN}/lint-imports",)),
]
# These measure time, or kill processes, and mostly wait: they run after everything else, all at once.
PATIENT_PARTS = [
    *_split(
        "faults",
        "tests/faults",
        ["test_redis_faults.py"],
        ["test_frozen_worker.py", "test_failover.py"],
        ["test_killed_beats.py", "test_stuck_schedules.py"],
    ),
    _pytest("deaths", "tests/deaths"),
    _pytest("outage", "tests/outage"),
]
STAGES = list(dict.fromkeys(["lint", "format", "types", "imports", *(part.stage for part in [*PARTS, *PATIENT_PARTS])]))
# Programs that the system must have: the Debian package of each, and the stages that need it.
PROGRAMS = {
    "slirp4netns": ("slirp4netns", {"unit", "api", "integration", "sandbox", "acceptance"}),
    "cc": ("gcc", {"acceptance"}),
    "make": ("make", {"acceptance"}),
}


def main(arguments: list[str]) -> int:
    names, extra = _split_arguments(arguments)
    if {"-h", "--help"} & set(names):
        print(f"{__doc__}\nThe stages are: {', '.join(STAGES)}.")
        return 0
    unknown = [name for name in names if name not in STAGES]
    if unknown:
        print(f"Unknown stage: {', '.join(unknown)}. The stages are: {', '.join(STAGES)}.", file=sys.stderr)
        return 2
    if missing := _prepare_system(set(names or STAGES)):
        print(missing, file=sys.stderr)
        return 2
    results = _run_named(names, extra) if names else _run_all(extra)
    _print_summary(results)
    return 1 if any(result.failed for result in results) or not sum(result.passed for result in results) else 0


def _prepare_system(stages: set[str]) -> str:
    """Install what the stages need of the system as root; return what an ordinary user has to do first."""
    is_root = os.geteuid() == 0
    missing = _find_missing_packages(stages)
    if missing and is_root and shutil.which("apt-get"):
        print(f"Installing {', '.join(missing)} ...", flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", *missing]):
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
        missing = _find_missing_packages(stages)
    advice = [f"apt-get install {' '.join(missing)}"] if missing else []
    if PROGRAMS["slirp4netns"][1] & stages and not _is_open(TUN):
        if is_root and TUN.exists():
            TUN.chmod(0o666)
        if not _is_open(TUN):
            advice.append(f"chmod 0666 {TUN}")
    return f"The tests need more of this system. Run as root: {' && '.join(advice)}" if advice else ""


def _find_missing_packages(stages: set[str]) -> list[str]:
    return [package for name, (package, users) in PROGRAMS.items() if users & stages and not shutil.which(name)]


def _is_open(device: Path) -> bool:
    mode = device.stat().st_mode if device.exists() else 0
    return bool(mode & stat.S_IROTH and mode & stat.S_IWOTH)


def _run_named(names: Sequence[str], extra: Sequence[str]) -> list[Result]:
    chosen = [part for name in names for part in [*PARTS, *PATIENT_PARTS] if part.stage == name]
    environment = _clean_environment()
    return _sum_stages([_run(part, extra, environment, quietly=False) for part in chosen])


def _run_all(extra: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    with TemporaryDirectory(prefix="punctual-suite-") as template:
        environment = _clean_environment() | {TEMPLATE_VARIABLE: template}
        make_template = (sys.executable, "-m", "tests.support.template", template)
        subprocess.run(make_template, cwd=ROOT, env=_clean_environment(), check=True)
        for parts, lanes in ((PARTS, LANES), (PATIENT_PARTS, len(PATIENT_PARTS))):
            print(f"Running {', '.join(dict.fromkeys(part.stage for part in parts))} ...", flush=True)
            with ThreadPoolExecutor(lanes) as pool:
                results += pool.map(lambda part: _run(part, extra, environment, quietly=True), parts)
    return _sum_stages(results)


def _clean_environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not _configures_a_stack(name)}
    # Where compiled code may not be kept, each of hundreds of processes would compile all of ours again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _sum_stages(results: Sequence[Result]) -> list[Result]:
    return [
        Result(stage, sum(r.passed for r in of), sum(r.failed for r in of), sum(r.seconds for r in of))
        for stage in STAGES
        if (of := [result for result in results if result.stage == stage])
    ]


def _split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _run(part: Part, extra: Sequence[str], environment: dict[str, str], *, quietly: bool) -> Result:
    title = f"\n== {part.stage} " + "=" * max(0, 76 - len(part.stage))
    if not quietly:
        print(title, flush=True)
    started = time.monotonic()
    with TemporaryDirectory(prefix="punctual-suite-") as scratch:
        report, output = Path(scratch) / "report.xml", Path(scratch) / "output"
        command = (*part.command, f"--junitxml={report}", *extra) if part.is_pytest else part.command
        with output.open("wb") as file:
            shown = file if quietly else None
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=shown, stderr=shown, check=False)
        if quietly:
            print(title, output.read_text(encoding="utf-8", errors="replace"), sep="\n", end="", flush=True)
        passed, failed = _count(report) if part.is_pytest else (int(done.returncode == 0), int(done.returncode != 0))
    if done.returncode != 0 and not failed:
        failed = 1
    return Result(part.stage, passed, failed, time.monotonic() - started)


def _configures_a_stack(name: str) -> bool:
    """The checks bring their own settings; those of a running stack must not reach them."""
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
