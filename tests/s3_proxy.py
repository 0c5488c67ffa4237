"""Stands between us and the object store, counts what is asked, and fails on command as networks and stores do.

What it forwards is forwarded as it came, the Host included: that is signed.
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
ANSWER_SECONDS = 30.0
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


class Fault(Enum):
    REFUSE = "hangs up at once"
    HANG = "takes the request and says nothing until the fault is over"
    SLOW = "sends a body in small pieces with pauses"
    DRIP = "sends a body byte by byte, and takes one in small pieces, with pauses"
    ERROR_500 = "answers 500"
    ERROR_503 = "answers 503"
    TRUNCATE = "promises a body and sends half of it"
    CORRUPT = "changes a byte of a body"
    CUT_UPLOAD = "hangs up in the middle of a request's body"


SIZES = {Fault.SLOW: PIECE_BYTES, Fault.DRIP: 1}
STATUS = {Fault.ERROR_500: 500, Fault.ERROR_503: 503}


@dataclass(frozen=True, slots=True)
class Requests:
    """For keys that begin so."""

    prefix: str = ""
    methods: frozenset[str] = frozenset({"GET", "PUT", "POST", "HEAD", "DELETE"})

    def include(self, method: str, key: str) -> bool:
        return method in self.methods and key.startswith(self.prefix)


ALL = Requests()
FETCHING = Requests("artifacts/", frozenset({"GET"}))
STORING = Requests("outputs/", frozenset({"PUT"}))


class S3Proxy:
    """`url` is what is given instead of the store's own; `asked` counts by method and first part of the key."""

    def __init__(self, endpoint_url: str) -> None:
        store = urlsplit(endpoint_url)
        self.target = (store.hostname or "", store.port or 80)
        self.asked: Counter[tuple[str, str]] = Counter()
        self.suffered = 0
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._failing = ALL
        self._left: int | None = None
        self._over = threading.Event()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def failing(self, fault: Fault, requests: Requests = ALL, *, times: int | None = None) -> Iterator[None]:
        """These requests fail, all of them or the next few."""
        with self._lock:
            self._over.clear()
            self._fault, self._failing, self._left = fault, requests, times
        try:
            yield
        finally:
            with self._lock:
                self._fault = None
            self._over.set()

    def calls(self, method: str | None = None, prefix: str | None = None) -> int:
        with self._lock:
            counted = list(self.asked.items())
        return sum(
            count for (verb, part), count in counted if method in (None, verb) and prefix in (None, f"{part}/", part)
        )

    def fault_of(self, method: str, key: str) -> Fault | None:
        with self._lock:
            self.asked[method, key.partition("/")[0]] += 1
            if self._fault is None or self._left == 0 or not self._failing.include(method, key):
                return None
            if self._left is not None:
                self._left -= 1
            self.suffered += 1
            return self._fault

    def wait_until_over(self, seconds: float) -> bool:
        return self._over.wait(seconds)

    def __enter__(self) -> S3Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    proxy: S3Proxy
    protocol_version = "HTTP/1.1"

    def handle_expect_100(self) -> bool:
        """Said when the body is read, and not before: one that is refused is never sent."""
        return True

    def answer(self) -> None:
        key = urlsplit(self.path).path.removeprefix("/").partition("/")[2]
        fault = self.proxy.fault_of(self.command, key)
        self.close_connection = True
        if fault is Fault.REFUSE:
            self._hang_up()
        elif fault is Fault.HANG:
            self.proxy.wait_until_over(HANG_SECONDS)
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
                # What the kernel takes meanwhile is not taken by us.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
            self._forward(fault)

    def _forward(self, fault: Fault | None) -> None:
        try:
            body = b"".join(self._read_slowly()) if fault is Fault.DRIP else self._read_body()
        except OSError:
            body = b""
        if len(body) != int(self.headers.get("Content-Length", 0)):
            # Whoever sent it is gone.
            self._hang_up()
            return
        store = http.client.HTTPConnection(*self.proxy.target, timeout=ANSWER_SECONDS)
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
            # Until the fault is over, or for a moment.
            self.proxy.wait_until_over(0.05)

    def _read_body(self) -> bytes:
        return self._read(int(self.headers.get("Content-Length", 0)))

    def _read_slowly(self) -> Iterator[bytes]:
        self._invite()
        left = int(self.headers.get("Content-Length", 0))
        while piece := self.rfile.read(min(left, PIECE_BYTES)):
            left -= len(piece)
            self.proxy.wait_until_over(0.05)
            yield piece

    def _read(self, length: int) -> bytes:
        self._invite()
        return self.rfile.read(length)

    def _invite(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()

    def _hang_up(self) -> None:
        """With a reset, as from a process that is gone."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  the names that http.server looks for

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            """Whoever asked is gone, or was hung up on."""

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: what was asked is counted."""
