"""Fixture: a server per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.punctual_cli.server import RecordingServer


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    running = RecordingServer()
    yield running
    running.close()
