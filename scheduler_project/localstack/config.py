"""The secrets and internal ports of one stack, generated once and stored in `config.json`.

The stack's data cannot be opened without these secrets, so a damaged file is never replaced silently.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.ports import GRPC_PORT_OFFSET, is_free, iter_free_ports
from scheduler_project.localstack.private_files import write_private


@dataclass(frozen=True)
class Secrets:
    secret_key: str
    admin_password: str
    api_token: str
    flower_password: str
    postgres_password: str
    postgres_superuser_password: str
    valkey_password: str
    s3_access_key_id: str
    s3_secret_access_key: str
    seaweedfs_signing_key: str
    supervisor_password: str
    secrets_key: str

    @classmethod
    def generate(cls) -> Secrets:
        # Letters and digits only, because they appear in URLs, configuration files and command lines.
        # Shorter where people may have to type them.
        typed = {"admin_password", "flower_password"}
        return cls(
            **{field.name: secrets.token_hex(12 if field.name in typed else 32) for field in dataclasses.fields(cls)}
        )


@dataclass(frozen=True)
class InternalPorts:
    postgres: int
    valkey: int
    s3: int
    seaweedfs_master: int
    seaweedfs_volume: int
    seaweedfs_filer: int
    seaweedfs_admin: int
    supervisor: int

    @classmethod
    def pick(cls) -> InternalPorts:
        ports = iter_free_ports()
        return cls(**{field.name: next(ports) for field in dataclasses.fields(cls)})

    def are_free(self) -> bool:
        return all(is_free(port) and is_free(port + GRPC_PORT_OFFSET) for port in dataclasses.asdict(self).values())


@dataclass(frozen=True)
class StackConfig:
    secrets: Secrets
    ports: InternalPorts

    @classmethod
    def read(cls, path: Path) -> StackConfig | None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            secrets_found, ports_found = document["secrets"], document["ports"]
            config = cls(Secrets(**secrets_found), InternalPorts(**ports_found))
            valid = all(type(value) is str and value for value in secrets_found.values()) and all(
                type(value) is int and 0 < value < 65536 - GRPC_PORT_OFFSET for value in ports_found.values()
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            valid = False
        if not valid:
            raise StackError(
                f"{path} is damaged, and it holds the passwords of the data in that directory: "
                f"restore it from a backup, or move {path.parent} away to start with an empty stack."
            )
        return config

    def write(self, path: Path) -> None:
        write_private(path, json.dumps(dataclasses.asdict(self), indent=2))


def load_config(path: Path, *, data: list[Path]) -> StackConfig:
    """Read the configuration, or create it at the first start."""
    config = StackConfig.read(path)
    if config is None:
        if existing := next((directory for directory in data if directory.exists()), None):
            raise StackError(
                f"{path} is missing, and with it the passwords of {existing}: restore it from a backup, "
                f"or move {path.parent} away to start with an empty stack."
            )
        config = StackConfig(Secrets.generate(), InternalPorts.pick())
        config.write(path)
    return config


def ensure_free_ports(config: StackConfig, path: Path) -> StackConfig:
    """Pick other internal ports if another program took one since the last start."""
    if config.ports.are_free():
        return config
    moved = dataclasses.replace(config, ports=InternalPorts.pick())
    moved.write(path)
    return moved
