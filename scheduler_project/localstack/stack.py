"""The parts of one stack: its engines, its application processes and their environment.

An engine whose address is in the caller's environment is not started; that service is used instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler_project.localstack.applications import build_application_environment, list_application_processes
from scheduler_project.localstack.config import StackConfig
from scheduler_project.localstack.engines.base import Engine
from scheduler_project.localstack.engines.postgres import Postgres
from scheduler_project.localstack.engines.seaweedfs import Seaweedfs, SeaweedfsPorts
from scheduler_project.localstack.engines.valkey import Valkey
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.processes.spec import ProcessSpec

ENGINES = ("postgres", "valkey", "seaweedfs")
APPLICATIONS = ("web", "beat", "worker", "flower")
SUPERVISOR = "supervisord"


@dataclass(frozen=True)
class Stack:
    layout: Layout
    config: StackConfig
    engines: tuple[Engine, ...]
    applications: tuple[ProcessSpec, ...]
    environment: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return (
            *(engine.name for engine in self.engines),
            *(application.name for application in self.applications),
        )


def list_local_engines(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the engines to run locally, because the environment names no other."""
    if environment.get("S3_ENDPOINT_URL") and not environment.get("S3_BUCKET"):
        raise StackError("S3_ENDPOINT_URL is set and S3_BUCKET is not: set both, or neither.")
    external = {
        "postgres": environment.get("DATABASE_URL"),
        "valkey": environment.get("REDIS_URL"),
        "seaweedfs": environment.get("S3_BUCKET"),
    }
    return tuple(name for name in ENGINES if not external[name])


def assemble_stack(layout: Layout, config: StackConfig, caller: Mapping[str, str]) -> Stack:
    local = list_local_engines(caller)
    engines = tuple(engine for engine in _build_engines(layout, config) if engine.name in local)
    engine_variables = {name: value for engine in engines for name, value in engine.environment().items()}
    environment = build_application_environment(layout, config.secrets, engine_variables, caller)
    return Stack(
        layout=layout,
        config=config,
        engines=engines,
        applications=list_application_processes(layout, environment),
        environment=environment,
    )


def _build_engines(layout: Layout, config: StackConfig) -> tuple[Engine, ...]:
    secrets, ports = config.secrets, config.ports
    return (
        Postgres(
            directory=layout.data("postgres"),
            port=ports.postgres,
            password=secrets.postgres_password,
            superuser_password=secrets.postgres_superuser_password,
        ),
        Valkey(directory=layout.data("valkey"), port=ports.valkey, password=secrets.valkey_password),
        Seaweedfs(
            directory=layout.data("seaweedfs"),
            part_ports=SeaweedfsPorts(
                s3=ports.s3,
                master=ports.seaweedfs_master,
                volume=ports.seaweedfs_volume,
                filer=ports.seaweedfs_filer,
                admin=ports.seaweedfs_admin,
            ),
            access_key_id=secrets.s3_access_key_id,
            secret_access_key=secrets.s3_secret_access_key,
            signing_key=secrets.seaweedfs_signing_key,
        ),
    )
