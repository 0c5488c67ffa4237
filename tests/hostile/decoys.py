"""Decoys for hostile programs: servers that count visits, secrets that must not be printed."""

import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SECRET = re.compile(r"punctual-decoy-[0-9a-f]{32}")


def make_secret() -> str:
    return f"punctual-decoy-{uuid.uuid4().hex}"


@dataclass
class Server:
    """Server that only accepts and counts connections."""

    listener: socket.socket
    visits: int = 0
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
        self.listener.close()


@dataclass(frozen=True)
class Decoys:
    """Addresses for the programs; `worker_secret` is in this process's environment and memory."""

    servers: dict[str, Server]
    arguments: dict[str, str]
    secret_file: Path
    input_file: Path  # standard input of some programs

    def visits(self) -> dict[str, int]:
        return {name: server.visits for name, server in self.servers.items() if server.visits}


@contextmanager
def decoys(directory: Path) -> Iterator[Decoys]:
    listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in ("redis", "postgres", "metadata")}
    addresses = {name: str(listener.getsockname()[1]) for name, listener in listeners.items()}
    names = {"abstract": f"\0punctual-decoy-{uuid.uuid4().hex[:8]}", "socket": str(directory / "decoy.sock")}
    for kind, name in names.items():
        listeners[kind] = socket.socket(socket.AF_UNIX)
        listeners[kind].bind(name)
        listeners[kind].listen()
    os.chmod(names["socket"], 0o777)  # noqa: S103 - modes shall not be what keeps them out
    secret_file = directory / "secret"
    secret_file.write_text(make_secret())
    secret_file.chmod(0o644)
    input_file = directory / "input"
    input_file.write_text("input")
    input_file.chmod(0o666)
    servers = {name: Server(listener) for name, listener in listeners.items()}
    arguments = {
        **addresses,
        "abstract": names["abstract"][1:],
        "socket": names["socket"],
        "secret_file": str(secret_file),
        "worker": str(os.getpid()),
    }
    try:
        yield Decoys(servers, arguments, secret_file, input_file)
    finally:
        for server in servers.values():
            server.close()
