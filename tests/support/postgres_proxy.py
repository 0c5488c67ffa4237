"""Stands between a process and Postgres, and fails on command: is away, freezes, or leads to another server.

A server that froze keeps its connections open and says nothing. Behind the proxy there is one server only, so the
transactions of frozen connections are ended there: on another server they would not exist.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

from django.db import connection

PIECE_BYTES = 64 * 1024
ENCRYPTION_REQUEST_BYTES = 8
REFUSED_OPTIONS = b"unsupported startup parameter: options"


class PostgresProxy:
    """`refuses_options`: as PgBouncer does that is not told to ignore them."""

    def __init__(self, *, refuses_options: bool = False) -> None:
        self._url = urlsplit(os.environ["DATABASE_URL"])
        self._refuses_options = refuses_options
        self._lock = threading.Lock()
        self._open: list[tuple[socket.socket, socket.socket]] = []
        self._silent: list[socket.socket] = []
        self._frozen = self._away = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """Of the database under test, by way of this."""
        user = self._url.netloc.rpartition("@")[0]
        port = self._listener.getsockname()[1]
        path = f"/{connection.settings_dict['NAME']}"
        return urlunsplit(self._url._replace(netloc=f"{user}@127.0.0.1:{port}", path=path))

    def freeze(self) -> None:
        """Nothing is answered any more, to nobody, and no connection is closed."""
        with self._lock:
            self._frozen = True
            opened, self._open = self._open, []
            self._silent += [client for client, _ in opened]
        for _, server in opened:
            _hang_up(server)

    def go_away(self) -> None:
        """As a server that ended: connections are closed, and new ones are refused."""
        with self._lock:
            self._away = True
            opened, self._open = self._open, []
        for client, server in opened:
            _hang_up(client)
            _hang_up(server)

    def lead_on(self) -> None:
        """New connections are answered, as by another server; those that were silent stay silent."""
        with self._lock:
            self._frozen = self._away = False

    def __enter__(self) -> PostgresProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.go_away()
        for client in self._silent:
            _hang_up(client)
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with self._lock:
            if self._away:
                _hang_up(client)
                return
            if self._frozen:
                self._silent.append(client)
                return
            server = socket.create_connection((self._url.hostname or "", self._url.port or 5432))
            self._open.append((client, server))
        back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
        if self._refuses_options and _refuse_options(client, server):
            _hang_up(client)
            _hang_up(server)
            return
        back.start()
        self._pump(client, server)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Until one of them hangs up. A client whose server froze hears nothing of it."""
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                target.sendall(piece)
        with self._lock:
            if target not in self._silent:
                _hang_up(target)


def _refuse_options(client: socket.socket, server: socket.socket) -> bool:
    """Reads the startup message, and passes it on unless it has options."""
    startup = client.recv(PIECE_BYTES)
    while len(startup) == ENCRYPTION_REQUEST_BYTES:
        server.sendall(startup)
        client.sendall(server.recv(1))
        startup = client.recv(PIECE_BYTES)
    if b"\0options\0" not in startup:
        server.sendall(startup)
        return False
    fields = b"SFATAL\0C08P01\0M" + REFUSED_OPTIONS + b"\0\0"
    client.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)
    return True


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
