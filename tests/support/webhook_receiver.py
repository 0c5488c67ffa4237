"""A receiver of webhooks on loopback with scripted responses, which records requests."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


Behave = Callable[["Handler", Received], None]


def answer(status: int, body: bytes = b"", **headers: str) -> Behave:
    def behave(handler: Handler, _: Received) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return behave


class Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        received = Received(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        receiver = self.server.receiver
        with receiver.lock:
            receiver.received.append(received)
            behave = receiver.answers.pop(0) if receiver.answers else receiver.behave
        behave(self, received)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    receiver: Receiver

    def handle_error(self, *_: Any) -> None:
        """Ignore closed connections, which tests cause on purpose."""


@dataclass
class Receiver:
    """Answers with each of `answers` once, in order, then with `behave`; with `tls`, over TLS."""

    behave: Behave = field(default_factory=lambda: answer(200, b"thanks"))
    answers: list[Behave] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.receiver = self
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"
