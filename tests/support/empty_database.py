"""A database without any table, and processes that work on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

ROOT = Path(__file__).resolve().parents[2]
NAME = "migrated_from_zero"
TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class EmptyDatabase:
    url: str

    def run_python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments in a new process whose Django uses this database."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=os.environ | {"DATABASE_URL": self.url, "DJANGO_SETTINGS_MODULE": "scheduler_project.settings"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )


@contextmanager
def create_empty_database(server_url: str) -> Iterator[EmptyDatabase]:
    parts = urlsplit(server_url)
    with psycopg.connect(urlunsplit(parts), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {NAME}")
    yield EmptyDatabase(urlunsplit(parts._replace(path=f"/{NAME}")))
    with psycopg.connect(urlunsplit(parts), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)")
