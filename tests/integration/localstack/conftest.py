"""Fixtures for the tests of the local stack's commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler_project.localstack.layout import CHECKOUT
from scheduler_project.localstack.ports import iter_free_ports

# Hide the suite's engines and settings: each test stack has its own.
_OF_THE_SUITE = ("PUNCTUAL_", "DATABASE_", "REDIS_", "S3_")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    ports = iter_free_ports()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_SUITE)}
    return {
        **inherited,
        "PYTHONPATH": str(CHECKOUT),
        "PUNCTUAL_VAR": str(tmp_path / "var"),
        "PUNCTUAL_WEB_PORT": str(next(ports)),
        "PUNCTUAL_FLOWER_PORT": str(next(ports)),
    }
