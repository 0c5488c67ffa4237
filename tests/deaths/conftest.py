"""A stack whose parts are killed and frozen; it marks a worker lost within seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import started_stack
from tests.deaths.laboratory import LEASE_SECONDS, Laboratory
from tests.support.stack import Stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with started_stack({"PUNCTUAL_LEASE_SECONDS": str(LEASE_SECONDS), "PUNCTUAL_RENEW_SECONDS": "1"}) as running:
        yield running


@pytest.fixture(scope="session")
def laboratory(stack: Stack) -> Iterator[Laboratory]:
    with Laboratory.opened(stack) as opened:
        yield opened
