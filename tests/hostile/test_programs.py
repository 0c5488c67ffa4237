"""Every hostile program has the outcome that it must have, whoever the worker is."""

from __future__ import annotations

import pytest

from tests.hostile.cases import CASES
from tests.hostile.conftest import RAN
from tests.hostile.stage import PROGRAMS
from tests.worker_process import WorkerProcess

# What others import, start beside it, or run in tests of their own.
HELPERS = {"attack", "log_fuzz", "victim"}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_program(worker: WorkerProcess, name: str, request: pytest.FixtureRequest) -> None:
    answer = worker.ask(name)
    assert isinstance(answer, dict)
    assert answer["uid"] == (worker.uid or 65534)
    request.config.stash[RAN][worker.uid].add(name)


def test_nothing_of_them_is_left(worker: WorkerProcess) -> None:
    worker.ask("end")


def test_every_program_is_in_the_table() -> None:
    named = {name for case in CASES for name in (case.program, case.then) if name}
    assert {path.name for path in PROGRAMS.iterdir() if path.suffix in (".py", ".sh")} == named | {
        f"{name}.py" for name in HELPERS
    }
    assert len({case.name for case in CASES}) == len(CASES) >= 40
