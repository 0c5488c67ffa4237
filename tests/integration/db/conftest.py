"""Fixtures of the tests of the database layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler_project.localstack.engines.standalone import Engines
from tests.support.empty_database import EmptyDatabase, create_empty_database


@pytest.fixture
def empty_database(engines: Engines) -> Iterator[EmptyDatabase]:
    with create_empty_database(engines.environment()["DATABASE_URL"]) as database:
        yield database
