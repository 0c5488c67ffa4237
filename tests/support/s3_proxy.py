"""A proxy of the object store that counts requests and injects faults of networks and stores.

It forwards requests unchanged, including the Host header, which is signed.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

PIECE_BYTES = 16 * 1024
HANG_SECONDS = 60.0
RESPONSE_TIMEOUT_SECONDS = 30.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


class Fault(Enum):
    REFUSE = "closes the connection at once"
    HANG = "accepts the request and does not respond until the fault ends"
    SLOW = "sends a body in small pieces with pauses"
    DRIP = "sends a body byte by byte, and receives one in small pieces, with pauses"
    ERROR_500 = "responds with 500"
    ERROR_503 = "responds with 503"
    TRUNCATE = "announces a body and sends half of it"
    CORRUPT = "changes a byte of a body"
    CUT_UPLOAD = "closes the connection in the middle of a request's body"


SIZES = {Fault.SLOW: PIECE_BYTES, Fault.DRIP: 1}
STATUS = {Fault.ERROR_500: 500, Fault.ERROR_503: 503}


@dataclass(frozen=True, slots=True)
class Requests:
    """Selects requests by method and key prefix."""

    prefix: str = ""
    methods: frozenset[str] = frozenset({"GET", "PUT", "POST", "HEAD", "DELETE"})

    def include(self, method: str, key: str) -> bool:
        return method in self.methods and key.startswith(self.prefix)


ALL = Requests()
FETCHING = Requests("artifacts/", frozenset({"GET"}))
STORING = Requests("outputs/", frozenset({"PUT"}))


class S3Proxy:
    """The proxy server. Use `url` as endpoint; `requests` counts by method and first part of the key."""

    def __init__(self, endpoint_url: str) -> None:
        store = urlsplit(endpoint_url)
        self.target = (store.hostname or "", store.port or 80)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.faults = 0
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._failing = ALL
        self._left: int | None = None
        self._fault_ended = threading.Event()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def failing(self, fault: Fault, requests: Requests = ALL, *, times: int | None = None) -> Iterator[None]:
        """Fail the selected requests: all, or the next `times`."""
        with self._lock:
            self._fault_ended.clear()
            self._fault, self._failing, self._left = fault, requests, times
        try:
            yield
        finally:
            with self._lock:
                self._fault = None
            self._fault_ended.set()

    def calls(self, method: str | None = None, prefix: str | None = None) -> int:
        with self._lock:
            counts = list(self.requests.items())
        return sum(
            count for (verb, part), count in counts if method in (None, verb) and prefix in (None, f"{part}/", part)
        )

    def fault_of(self, method: str, key: str) -> Fault | None:
        with self._lock:
            self.requests[method, key.partition("/")[0]] += 1
            if self._fault is None or self._left == 0 or not self._failing.include(method, key):
                return None
            if self._left is not None:
                self._left -= 1
            self.faults += 1
            return self._fault

    def wait_for_fault_end(self, seconds: float) -> bool:
        return self._fault_ended.wait(seconds)

    def __enter__(self) -> S3Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fault_ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    proxy: S3Proxy
    protocol_version = "HTTP/1.1"

    def handle_expect_100(self) -> bool:
        """Send 100 Continue only when the body is read: a client must not send a refused body."""
        return True

    def answer(self) -> None:
        key = urlsplit(self.path).path.removeprefix("/").partition("/")[2]
        fault = self.proxy.fault_of(self.command, key)
        self.close_connection = True
        if fault is Fault.REFUSE:
            self._hang_up()
        elif fault is Fault.HANG:
            self.proxy.wait_for_fault_end(HANG_SECONDS)
            self._hang_up()
        elif fault is Fault.CUT_UPLOAD:
            self._read(int(self.headers.get("Content-Length", 0)) // 2)
            self._hang_up()
        elif fault in STATUS:
            self._read_body()
            self.send_response(STATUS[fault])
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            if fault is Fault.DRIP:
                # Keep the kernel from receiving the body for us.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
            self._forward(fault)

    def _forward(self, fault: Fault | None) -> None:
        try:
            body = b"".join(self._read_slowly()) if fault is Fault.DRIP else self._read_body()
        except OSError:
            body = b""
        if len(body) != int(self.headers.get("Content-Length", 0)):
            # The client has disconnected.
            self._hang_up()
            return
        store = http.client.HTTPConnection(*self.proxy.target, timeout=RESPONSE_TIMEOUT_SECONDS)
        try:
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP_BY_HOP | {"expect"}:
                    store.putheader(name, value)
            store.endheaders(body)
            response = store.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            self._hang_up()
            return
        finally:
            store.close()
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        self._send(data, fault)

    def _send(self, data: bytes, fault: Fault | None) -> None:
        if fault is Fault.TRUNCATE:
            data = data[: len(data) // 2]
        if fault is Fault.CORRUPT and data:
            at = len(data) // 2
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        size = SIZES.get(fault, 0) if fault else 0
        if not size:
            self.wfile.write(data)
            return
        for start in range(0, len(data), size):
            self.wfile.write(data[start : start + size])
            # Pause, but no longer than the fault lasts.
            self.proxy.wait_for_fault_end(0.05)

    def _read_body(self) -> bytes:
        return self._read(int(self.headers.get("Content-Length", 0)))

    def _read_slowly(self) -> Iterator[bytes]:
        self._send_continue()
        left = int(self.headers.get("Content-Length", 0))
        while piece := self.rfile.read(min(left, PIECE_BYTES)):
            left -= len(piece)
            self.proxy.wait_for_fault_end(0.05)
            yield piece

    def _read(self, length: int) -> bytes:
        self._send_continue()
        return self.rfile.read(length)

    def _send_continue(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()

    def _hang_up(self) -> None:
        """Close the connection with a reset, as the kernel does for a dead process."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  the names that http.server looks for

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            """The client has disconnected, or the proxy closed the connection."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests are counted."""
