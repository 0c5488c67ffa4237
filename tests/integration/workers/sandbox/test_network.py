"""Runs with a network, while no packet leaves the machine; as root, also as an ordinary user."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.integration.workers.sandbox import network_cases as cases
from tests.integration.workers.sandbox.conftest import WHEEL_BWRAP
from tests.support.worker_process import ORDINARY_ID, WorkerProcess

USERS = [os.getuid(), *([ORDINARY_ID] if os.getuid() == 0 else [])]


@pytest.fixture(scope="module", params=USERS)
def worker(request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
    """Run the cases in a separate process, which switches to another network namespace."""
    files = ("tests/integration/workers/sandbox",)
    with WorkerProcess(cases.__name__, uid=request.param, files=files, bwrap=WHEEL_BWRAP, environment={}) as worker:
        yield worker


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_case(worker: WorkerProcess, case: Callable[..., None]) -> None:
    worker.ask(case.__name__)
