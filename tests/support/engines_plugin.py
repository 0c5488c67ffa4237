"""A pytest plugin: real Postgres, Valkey and SeaweedFS in a temporary directory, started when a test first needs them.

It is loaded before Django reads its settings, so it decides ports and secrets at import and starts nothing yet.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler_project.localstack.engines.standalone import Engines
from tests.suite import TEMPLATE_VARIABLE
from tests.support import template

DIRECTORY = Path(tempfile.mkdtemp(prefix="punctual-test-"))
ENGINES = Engines(DIRECTORY / "engines")
TEMPLATE = os.environ.pop(TEMPLATE_VARIABLE, "")
if TEMPLATE:
    template.adopt(ENGINES, Path(TEMPLATE))

os.environ.update(
    ENGINES.environment(),
    PUNCTUAL_ENV="development",
    PUNCTUAL_HTTPS="false",
    DATABASE_POOL_SIZE="20",
    PUNCTUAL_SECRETS_KEYS=secrets.token_hex(32),
    ALLOWED_HOSTS="testserver,127.0.0.1,localhost",
    PUNCTUAL_WORKER_STATE_DIR=str(DIRECTORY / "worker"),
)


def pytest_unconfigure() -> None:
    ENGINES.stop()
    shutil.rmtree(DIRECTORY, ignore_errors=True)


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    ENGINES.start()
    yield ENGINES
    ENGINES.stop()
