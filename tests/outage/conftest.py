"""A stack of its own: what is stopped here is missed by nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import started_stack
from tests.acceptance.stack import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with started_stack({"PUNCTUAL_WORKER_SLOTS": "16", "PUNCTUAL_WORKER_CPU": "16"}) as running:
        yield running
