"""Each program runs for a worker that is root and for one that is an ordinary user; how many did is said at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.hostile.cases import CASES
from tests.hostile.decoys import make_secret
from tests.worker_process import ORDINARY_ID, WorkerProcess
from workers.sandbox import find_bwrap

FILES = (
    "tests/hostile",
    "tests/integration/sandbox/driving.py",
    "workers/masking.py",
    "workers/outputs.py",
    "jobs/conf.py",
    "jobs/errors.py",
    "jobs/protocol.py",
    "jobs/states.py",
    "jobs/storable.py",
)
WORKERS = (0, ORDINARY_ID) if os.getuid() == 0 else (os.getuid(),)
RAN = pytest.StashKey[dict[int, set[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    ran: dict[int, set[str]] = {uid: set() for uid in WORKERS}
    config.stash[RAN] = ran


@pytest.fixture(scope="session", params=WORKERS, ids=["root" if uid == 0 else "user" for uid in WORKERS])
def worker(request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    """Its environment holds a secret from its first instruction on, as that of a real worker does."""
    secret = {"DECOY_SECRET": make_secret(), "DATABASE_URL": f"postgres://worker:{make_secret()}@127.0.0.1/punctual"}
    with WorkerProcess(
        "tests.hostile.stage", uid=request.param, files=FILES, bwrap=find_bwrap(), environment=secret
    ) as process:
        yield process


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A stage in which no program ran under one of the users has shown nothing."""
    ran = session.config.stash[RAN]
    if not session.config.option.collectonly and any(not names for names in ran.values()) and not _selected(session):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _selected(session: pytest.Session) -> bool:
    """By hand somebody may choose a single test."""
    option = session.config.option
    return bool(option.keyword or option.markexpr) or any(
        "::" in argument or argument.endswith(".py") for argument in session.config.args
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    told = [
        f"{len(names)} as uid 65534 for a root worker" if uid == 0 else f"{len(names)} as uid {uid}"
        for uid, names in config.stash[RAN].items()
    ]
    if os.getuid() != 0:
        told.append("none for a root worker, because this is not root")
    terminalreporter.write_line(f"hostile programs: {', '.join(told)} (of {len(CASES)})")
