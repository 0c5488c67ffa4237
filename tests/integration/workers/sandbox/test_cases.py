"""The core guarantees on each kind of sandbox; as root, also as an ordinary user."""

import os
from collections.abc import Callable, Iterator

import pytest

from tests.integration.workers.sandbox import guarded_cases as cases
from tests.integration.workers.sandbox.conftest import SYSTEM_BWRAP, WHEEL_BWRAP
from tests.support.worker_process import ORDINARY_ID, WorkerProcess
from workers.sandbox.sandbox import Sandbox

Case = Callable[[Sandbox], None]
BWRAPS = [WHEEL_BWRAP, *([SYSTEM_BWRAP] if SYSTEM_BWRAP.exists() else [])]
FILES = (
    "tests/integration/workers/sandbox",
    "workers/lease/guardian.py",
    "workers/lease/guardian_process.py",
    "workers/errors.py",
    "jobs/domain/errors.py",
)


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_case(sandbox: Sandbox, case: Case) -> None:
    case(sandbox)


if os.geteuid() == 0:

    @pytest.fixture(scope="module", params=BWRAPS, ids=["wheel", "system"][: len(BWRAPS)])
    def ordinary_worker(request: pytest.FixtureRequest) -> Iterator[WorkerProcess]:
        module = "tests.integration.workers.sandbox.ordinary_user"
        with WorkerProcess(module, uid=ORDINARY_ID, files=FILES, bwrap=request.param, environment={}) as worker:
            yield worker

    @pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
    def test_case_as_ordinary_user(ordinary_worker: WorkerProcess, case: Case) -> None:
        ordinary_worker.ask(case.__name__)
