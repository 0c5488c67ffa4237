"""Every hostile program has its expected outcome, for a root worker and an ordinary user's."""

from __future__ import annotations

import pytest

from tests.hostile.cases import CASES
from tests.hostile.conftest import RAN
from tests.hostile.stage import PROGRAMS
from tests.support.worker_process import WorkerProcess
from workers.sandbox.slots.users import NOBODY

# Helpers, and programs that other cases or tests run.
HELPERS = {"attack", "log_fuzz", "victim"}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_program(worker: WorkerProcess, name: str, request: pytest.FixtureRequest) -> None:
    answer = worker.ask(name)
    assert isinstance(answer, dict)
    assert answer["uid"] > NOBODY if worker.uid == 0 else answer["uid"] == worker.uid
    request.config.stash[RAN][worker.uid].add(name)


def test_programs_leave_nothing_behind(worker: WorkerProcess) -> None:
    worker.ask("end")


def test_every_program_has_a_case() -> None:
    named = {name for case in CASES for name in (case.program, case.then) if name}
    assert {path.name for path in PROGRAMS.iterdir() if path.suffix in (".py", ".sh")} == named | {
        f"{name}.py" for name in HELPERS
    }
    assert len({case.name for case in CASES}) == len(CASES) >= 40
