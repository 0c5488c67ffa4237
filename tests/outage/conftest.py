"""A separate stack, whose object store the tests stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import started_stack
from tests.support.stack import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with started_stack({"PUNCTUAL_WORKER_SLOTS": "16", "PUNCTUAL_WORKER_CPU": "16"}) as running:
        yield running
