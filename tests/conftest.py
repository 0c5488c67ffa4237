"""Fixtures for every kind of test; those that touch Django's database get the real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections

from scheduler_project.embedded.engines import Engines


@pytest.fixture(scope="session")
def django_db_modify_db_settings(engines: Engines) -> None:
    """pytest-django creates the test database only once the engines run."""


@pytest.fixture
def bucket(engines: Engines) -> None:
    from jobs import storage

    storage.create_bucket()


@pytest.fixture(autouse=True, scope="session")
def _return_pooled_connections() -> Iterator[None]:
    yield
    for connection in connections.all(initialized_only=True):
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
