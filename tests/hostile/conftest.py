"""Runs each program for a root worker and for an ordinary user's, and prints the counts at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.hostile.cases import CASES
from tests.hostile.decoys import make_secret
from tests.support.worker_process import ORDINARY_ID, WorkerProcess
from workers.sandbox.bubblewrap.command_line import find_bwrap

FILES = (
    "tests/hostile",
    "workers/run/masking.py",
    "workers/run/outputs.py",
    "jobs/domain/limits.py",
    "jobs/domain/errors.py",
    "jobs/domain/worker_protocol.py",
    "jobs/domain/states.py",
    "jobs/domain/text_validation.py",
)
WORKERS = (0, ORDINARY_ID) if os.getuid() == 0 else (os.getuid(),)
RAN = pytest.StashKey[dict[int, set[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    ran: dict[int, set[str]] = {uid: set() for uid in WORKERS}
    config.stash[RAN] = ran


@pytest.fixture(scope="session", params=WORKERS, ids=["root" if uid == 0 else "user" for uid in WORKERS])
def worker(request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    """Start a worker process with a secret in its initial environment, as a real worker has."""
    secret = {"DECOY_SECRET": make_secret(), "DATABASE_URL": f"postgres://worker:{make_secret()}@127.0.0.1/punctual"}
    with WorkerProcess(
        "tests.hostile.stage", uid=request.param, files=FILES, bwrap=find_bwrap(), environment=secret
    ) as process:
        yield process


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if no program ran under one of the users."""
    ran = session.config.stash[RAN]
    if not session.config.option.collectonly and any(not names for names in ran.values()) and not _selected(session):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _selected(session: pytest.Session) -> bool:
    """Return whether all tests were selected."""
    option = session.config.option
    return bool(option.keyword or option.markexpr) or any(
        "::" in argument or argument.endswith(".py") for argument in session.config.args
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts = [
        f"{len(names)} as users of their own for a root worker" if uid == 0 else f"{len(names)} as uid {uid}"
        for uid, names in config.stash[RAN].items()
    ]
    if os.getuid() != 0:
        counts.append("none for a root worker, because this is not root")
    terminalreporter.write_line(f"hostile programs: {', '.join(counts)} (of {len(CASES)})")
