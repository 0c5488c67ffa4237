"""Sends one request to an untrusted receiver and reads the beginning of the response.

Invariant: it connects only to addresses that the policy has checked, follows no redirects, uses no proxy, verifies
certificates, and ends by its deadline however slow or long the response is. Nothing that the receiver does raises.
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

from jobs.domain.text_validation import to_storable_text
from jobs.notifications.webhooks.address_policy import AddressPolicy, AddressRefused, Target
from jobs.notifications.webhooks.pacing import SUCCESS_STATUSES
from jobs.notifications.webhooks.resolving import LookupTimedOut, Resolve, resolve_host

CONNECT_TIMEOUT_SECONDS = 3.0
TOTAL_TIMEOUT_SECONDS = 10.0
MAX_STORED_RESPONSE_BYTES = 1024
# Headers count, too: http.client alone would accept a hundred of 64 KB.
MAX_RESPONSE_BYTES = 32 * 1024
MAX_ERROR_LENGTH = 500


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    target: Target
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """`error`: why the delivery failed; empty if it succeeded."""

    status_code: int | None = None
    error: str = ""
    text: str = ""


def timed_out_response(total_seconds: float) -> WebhookResponse:
    return WebhookResponse(
        error=f"There was no answer in time ({CONNECT_TIMEOUT_SECONDS:g} s to connect, {total_seconds:g} s in all)."
    )


def send_webhook(
    request: WebhookRequest,
    *,
    policy: AddressPolicy,
    resolve: Resolve = resolve_host,
    total_seconds: float = TOTAL_TIMEOUT_SECONDS,
) -> WebhookResponse:
    deadline = time.monotonic() + total_seconds
    target = request.target
    try:
        addresses = policy.check(resolve(target.host, target.port))
        with closing(_connect(target, addresses, deadline)) as connection:
            return _exchange(connection, request, deadline)
    except (AddressRefused, LookupTimedOut) as error:
        return WebhookResponse(error=str(error))
    except (socket.gaierror, UnicodeError):
        return WebhookResponse(error="The host's name does not resolve.")
    except TimeoutError:
        return timed_out_response(total_seconds)
    except ssl.SSLError as error:
        return WebhookResponse(error=_format_error(f"No encrypted connection could be made: {error.reason or error}"))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return WebhookResponse(error=_format_error(f"There was no answer: {type(error).__name__}: {error}"))


def _connect(target: Target, addresses: Sequence[str], deadline: float) -> socket.socket:
    connect_deadline = min(deadline, time.monotonic() + CONNECT_TIMEOUT_SECONDS)
    plain = _connect_to_any(addresses, target.port, connect_deadline)
    if target.scheme == "http":
        return plain
    try:
        plain.settimeout(_remaining_seconds(deadline))
        return _tls_context().wrap_socket(plain, server_hostname=target.host)
    except BaseException:
        plain.close()
        raise


def _connect_to_any(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    problem: OSError = TimeoutError()
    for tried, address in enumerate(addresses):
        # A silent address leaves time for the others.
        share = _remaining_seconds(deadline) / (len(addresses) - tried)
        try:
            return socket.create_connection((address, port), timeout=share)
        except TimeoutError as error:
            problem = error
            if time.monotonic() >= deadline:
                break
        except OSError as error:
            problem = error
    raise problem


def _exchange(connection: socket.socket, request: WebhookRequest, deadline: float) -> WebhookResponse:
    client = http.client.HTTPConnection(request.target.host, request.target.port)
    client.sock = _DeadlineSocket(connection, deadline)
    headers = {"Host": request.target.authority, "Connection": "close", **request.headers}
    client.request("POST", request.target.path, body=request.body, headers=headers)
    response = client.getresponse()
    try:
        text = response.read(MAX_STORED_RESPONSE_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError):
        # The status decides, and it has arrived.
        text = ""
    return WebhookResponse(
        response.status, _explain_status(response.status), to_storable_text(text, MAX_STORED_RESPONSE_BYTES)
    )


def _explain_status(status: int) -> str:
    if status in SUCCESS_STATUSES:
        return ""
    if 300 <= status < 400:
        return f"The answer was {status}: redirects are not followed; use the address that it points to."
    return f"The answer was {status}."


class _DeadlineSocket:
    """The part of a socket that http.client uses, with one deadline for all operations together."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(_remaining_seconds(self._deadline))
            rest = rest[self._socket.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._socket, self._deadline))

    def close(self) -> None:
        """Do nothing: http.client closes before it reads the response, and `send_webhook` closes the socket."""


class _DeadlineReader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline
        self._remaining_bytes = MAX_RESPONSE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._remaining_bytes <= 0:
            raise http.client.HTTPException(f"it is longer than {MAX_RESPONSE_BYTES} bytes, headers included")
        self._socket.settimeout(_remaining_seconds(self._deadline))
        received = self._socket.recv_into(buffer, min(len(buffer), self._remaining_bytes))
        self._remaining_bytes -= received
        return received


def _remaining_seconds(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _format_error(text: str) -> str:
    return to_storable_text(text, MAX_ERROR_LENGTH)
