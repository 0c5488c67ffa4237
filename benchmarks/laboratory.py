"""What benchmarks run in: engines of their own in a temporary directory, and a migrated database.

Nothing is left behind however a benchmark ends: engines and measured processes end with it, the directory is removed,
unless it is to be kept, with the database in it, for the next run.
Postgres writes to disk before it answers a commit, as in production.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import django

from scheduler_project.localstack.engines.postgres import ROLE, Postgres
from scheduler_project.localstack.engines.standalone import EngineProcess, Engines
from scheduler_project.localstack.private_files import make_private_directory, write_private

ROOT = Path(__file__).resolve().parents[1]
# A benchmark's own process stores millions of rows with one statement.
FILL_STATEMENT_SECONDS = "3600"
_started = time.monotonic()


@dataclass(frozen=True, slots=True)
class Laboratory:
    directory: Path
    database_url: str
    superuser_url: str
    redis_url: str
    postgres_pid: int
    redis_pid: int


def say(text: str) -> None:
    """Tells whoever watches what is going on; standard output is for the result alone."""
    print(f"{time.monotonic() - _started:6.1f} s  {text}", file=sys.stderr, flush=True)


@contextmanager
def laboratory(kept: Path | None = None) -> Iterator[Laboratory]:
    """Django is ready to be used inside; everything is gone afterwards, but for a directory that is kept."""
    signal.signal(signal.SIGTERM, _leave)
    directory = kept.resolve() if kept else Path(tempfile.mkdtemp(prefix="punctual-benchmark-"))
    try:
        engines = _DurableEngines(directory)
        with engines:
            environment = engines.environment()
            os.environ.update(
                environment,
                DJANGO_SETTINGS_MODULE="scheduler_project.settings",
                PUNCTUAL_ENV="development",
                PUNCTUAL_LOG_LEVEL="WARNING",
                PUNCTUAL_WORKER_STATE_DIR=str(directory / "worker"),
                DATABASE_STATEMENT_SECONDS=FILL_STATEMENT_SECONDS,
            )
            django.setup()
            # The processes that are measured have the timeout of production.
            del os.environ["DATABASE_STATEMENT_SECONDS"]
            from django.core.management import call_command

            call_command("migrate", verbosity=0)
            yield Laboratory(
                directory,
                environment["DATABASE_URL"],
                engines.superuser_url,
                environment["REDIS_URL"],
                engines.postgres.pid,
                engines.valkey.pid,
            )
    finally:
        if not kept:
            shutil.rmtree(directory, ignore_errors=True)


class _DurableEngines(Engines):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "engines")
        postgres = self.postgres.engine
        assert isinstance(postgres, Postgres)
        # A database that was kept knows the password that it was made with.
        make_private_directory(directory)
        password = directory / "password"
        if not password.exists():
            write_private(password, postgres.password)
        known = password.read_text()
        postgres = replace(postgres, sync_to_disk=True, password=known, superuser_password=known)
        self.postgres = EngineProcess(postgres, self.directory)
        self.superuser_url = postgres.url.replace(f"//{ROLE}:", "//postgres:")


def _leave(number: int, frame: FrameType | None) -> None:
    """So that a benchmark that is stopped cleans up."""
    raise SystemExit(128 + number)
