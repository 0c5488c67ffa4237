"""Puts one stack together: which engines run here, which are given, and the processes that use them.

An engine whose address is in the caller's environment is not started: the given one is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler_project.embedded.applications import application_environment, application_processes
from scheduler_project.embedded.config import StackConfig
from scheduler_project.embedded.engine import Engine
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.postgres import Postgres
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.process import ProcessSpec
from scheduler_project.embedded.seaweedfs import Seaweedfs, SeaweedfsPorts
from scheduler_project.embedded.valkey import Valkey

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


def local_engines(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The engines that this machine must run, because the environment names no other."""
    if environment.get("S3_ENDPOINT_URL") and not environment.get("S3_BUCKET"):
        raise StackProblem("S3_ENDPOINT_URL is set and S3_BUCKET is not: set both, or neither.")
    given = {
        "postgres": environment.get("DATABASE_URL"),
        "valkey": environment.get("REDIS_URL"),
        "seaweedfs": environment.get("S3_BUCKET"),
    }
    return tuple(name for name in ENGINES if not given[name])


def assemble(layout: Layout, config: StackConfig, caller: Mapping[str, str]) -> Stack:
    local = local_engines(caller)
    engines = tuple(engine for engine in _all_engines(layout, config) if engine.name in local)
    addresses = {name: value for engine in engines for name, value in engine.environment().items()}
    environment = application_environment(layout, config.secrets, addresses, caller)
    return Stack(
        layout=layout,
        config=config,
        engines=engines,
        applications=application_processes(layout, environment),
        environment=environment,
    )


def _all_engines(layout: Layout, config: StackConfig) -> tuple[Engine, ...]:
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
