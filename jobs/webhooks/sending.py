"""Sends one request to somebody we do not know, and reads the beginning of the answer.

Invariant: it connects to an address that was checked, and to no other; it follows nothing, asks no proxy, verifies who
answers, and is over in time however slowly the other side speaks, and soon however much it says. Nothing
that the other side does raises.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache

from jobs.storable import storable_text
from jobs.webhooks.addresses import AddressRefused, Reach, Target
from jobs.webhooks.pacing import OK
from jobs.webhooks.resolving import NotLookedUp, Resolve, resolve_host

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 10.0
MAX_ANSWER_BYTES = 1024
# With its headers, of which http.client alone would keep a hundred of 64 KB.
MAX_HEARD_BYTES = 32 * 1024
MAX_ERROR_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Request:
    target: Target
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """`error`: why it does not count as delivered; empty: it does."""

    status_code: int | None = None
    error: str = ""
    text: str = ""


def not_in_time(total_seconds: float) -> Answer:
    return Answer(error=f"There was no answer in time ({CONNECT_SECONDS:g} s to connect, {total_seconds:g} s in all).")


def send(
    request: Request, *, reach: Reach, resolve: Resolve = resolve_host, total_seconds: float = TOTAL_SECONDS
) -> Answer:
    deadline = time.monotonic() + total_seconds
    target = request.target
    try:
        addresses = reach.check(resolve(target.host, target.port))
        with closing(_connect(target, addresses, deadline)) as connected:
            return _converse(connected, request, deadline)
    except (AddressRefused, NotLookedUp) as error:
        return Answer(error=str(error))
    except (socket.gaierror, UnicodeError):
        return Answer(error="The host's name stands for no address.")
    except TimeoutError:
        return not_in_time(total_seconds)
    except ssl.SSLError as error:
        return Answer(error=_words(f"No encrypted connection could be made: {error.reason or error}"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(error=_words(f"There was no answer: {type(error).__name__}: {error}"))


def _connect(target: Target, addresses: Sequence[str], deadline: float) -> socket.socket:
    connecting_until = min(deadline, time.monotonic() + CONNECT_SECONDS)
    plain = _connect_to_any(addresses, target.port, connecting_until)
    if target.scheme == "http":
        return plain
    try:
        plain.settimeout(_left(deadline))
        return _tls().wrap_socket(plain, server_hostname=target.host)
    except BaseException:
        plain.close()
        raise


def _connect_to_any(addresses: Sequence[str], port: int, until: float) -> socket.socket:
    problem: OSError = TimeoutError()
    for tried, address in enumerate(addresses):
        # So that one that is silent leaves time for the others.
        share = _left(until) / (len(addresses) - tried)
        try:
            return socket.create_connection((address, port), timeout=share)
        except TimeoutError as error:
            problem = error
            if time.monotonic() >= until:
                break
        except OSError as error:
            problem = error
    raise problem


def _converse(connected: socket.socket, request: Request, deadline: float) -> Answer:
    conversation = http.client.HTTPConnection(request.target.host, request.target.port)
    conversation.sock = _InTime(connected, deadline)
    headers = {"Host": request.target.authority, "Connection": "close", **request.headers}
    conversation.request("POST", request.target.path, body=request.body, headers=headers)
    response = conversation.getresponse()
    try:
        text = response.read(MAX_ANSWER_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError):
        # What counts has been said.
        text = ""
    return Answer(response.status, _refusal(response.status), storable_text(text, MAX_ANSWER_BYTES))


def _refusal(status: int) -> str:
    if status in OK:
        return ""
    if 300 <= status < 400:
        return f"The answer was {status}: redirects are not followed; give the address that it leads to."
    return f"The answer was {status}."


class _InTime:
    """A socket, as far as http.client needs one, whose every operation ends at the deadline: drops count, too."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(_left(self._deadline))
            rest = rest[self._socket.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Heard(self._socket, self._deadline))

    def close(self) -> None:
        """Closed by who opened it: http.client does so before the answer is read."""


class _Heard(io.RawIOBase):
    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self._deadline = deadline
        self._room = MAX_HEARD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._room <= 0:
            raise http.client.HTTPException(f"it is longer than {MAX_HEARD_BYTES} bytes, headers included")
        self._socket.settimeout(_left(self._deadline))
        heard = self._socket.recv_into(buffer, min(len(buffer), self._room))
        self._room -= heard
        return heard


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _words(text: str) -> str:
    return storable_text(text, MAX_ERROR_LENGTH)
