"""HTTP transport of a worker: every wait has a timeout, every refusal maps to an error class.

The token is sent to the control plane only; requests to the object store use presigned URLs.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

import httpx

from jobs.domain.errors import (
    ArtifactNotUploaded,
    PunctualError,
    StaleAttempt,
    StorageUnavailable,
    WorkerLeaseLost,
    WorkerLimitReached,
    WorkerNameTaken,
)
from jobs.domain.loopback import is_loopback
from workers.errors import ControlPlaneUnavailable, RequestRejected, WorkerTokenRejected

CONNECT_TIMEOUT_SECONDS = 5.0
RESPONSE_TIMEOUT_SECONDS = 10.0
TRANSFER_TIMEOUT_SECONDS = 30.0
MAX_KEEPALIVE_CONNECTIONS = 20
ERROR_BY_PROBLEM_TYPE: Mapping[str, type[PunctualError]] = {
    kind.problem_type: kind for kind in (StaleAttempt, WorkerLeaseLost, WorkerNameTaken, WorkerLimitReached)
}
JsonObject = dict[str, Any]


class RestTransport:
    def __init__(
        self,
        url: str,
        token: str,
        *,
        ca_file: str | None = None,
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._base = f"{url.rstrip('/')}/api/v1/"
        self._on_refused = on_refused
        # A proxy from the environment cannot reach this machine's loopback.
        trusts_environment = not is_loopback(urlsplit(url).hostname or "")
        verify = ssl.create_default_context()
        if ca_file:
            # In addition to the system's: the object store may have a public certificate.
            verify.load_verify_locations(ca_file)
        self._http = httpx.Client(
            headers={"User-Agent": "punctual-worker"},
            timeout=httpx.Timeout(RESPONSE_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
            # Every run may have a request in flight.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=MAX_KEEPALIVE_CONNECTIONS),
            verify=verify,
            trust_env=trusts_environment,
            follow_redirects=False,
        )
        self._authorization = {"Authorization": f"Bearer {token}"}

    def close(self) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        missing: type[PunctualError] = ControlPlaneUnavailable,
        seconds: float = RESPONSE_TIMEOUT_SECONDS,
    ) -> JsonObject:
        """Send one request and return its JSON object; a 404 raises `missing`."""
        try:
            response = self._http.request(
                method,
                self._base + path,
                json=body,
                headers=self._authorization,
                timeout=httpx.Timeout(seconds, connect=CONNECT_TIMEOUT_SECONDS),
            )
        except httpx.HTTPError as error:
            raise ControlPlaneUnavailable(f"{self._base} does not answer: {_describe_error(error)}") from error
        return self._read(response, missing)

    def download(self, url: str) -> Iterator[bytes]:
        """Yield the bytes of an object in the object store."""
        _check_encrypted(url)
        with (
            _mapped_storage_errors(),
            self._http.stream(
                "GET", url, timeout=httpx.Timeout(TRANSFER_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS)
            ) as response,
        ):
            if response.status_code == 404:
                raise ArtifactNotUploaded
            _check_storage_response(response)
            yield from response.iter_bytes()

    def upload(self, method: str, url: str, headers: Mapping[str, str], body: IO[bytes]) -> None:
        _check_encrypted(url)
        with _mapped_storage_errors():
            response = self._http.request(
                method,
                url,
                headers=dict(headers),
                content=body,
                timeout=httpx.Timeout(TRANSFER_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
            )
            _check_storage_response(response)

    def _read(self, response: httpx.Response, missing: type[PunctualError]) -> JsonObject:
        status = response.status_code
        answer = _decode(response)
        if response.is_success and answer is not None:
            return answer
        problem = answer or {}
        detail = str(
            problem.get("detail")
            or f"{self._base} does not answer as Punctual does ({status} {response.reason_phrase})."
        )
        if status in {401, 403}:
            self._on_refused(detail)
            raise WorkerTokenRejected(detail)
        if status == 404:
            raise missing(detail)
        if kind := ERROR_BY_PROBLEM_TYPE.get(str(problem.get("type"))):
            raise kind(detail)
        if 400 <= status < 500 and status not in {408, 425, 429}:
            # A bug, or a worker of another version: a retry would not help.
            raise RequestRejected(f"{response.request.url.path} was refused: {detail}")
        raise ControlPlaneUnavailable(detail)


def _decode(response: httpx.Response) -> JsonObject | None:
    """Return the JSON object in the response; None if it is not from a Punctual server."""
    if not response.content:
        return {}
    try:
        decoded: object = response.json()
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None


@contextmanager
def _mapped_storage_errors() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise StorageUnavailable(f"The object store does not answer: {_describe_error(error)}") from error


def is_plaintext_refused(url: str, link: str) -> bool:
    """Return whether this URL is unencrypted and PUNCTUAL_ALLOW_PLAINTEXT does not name the link."""
    parts = urlsplit(url)
    allowed = {part.strip() for part in os.environ.get("PUNCTUAL_ALLOW_PLAINTEXT", "").split(",")}
    return parts.scheme == "http" and not is_loopback(parts.hostname or "") and link not in allowed


def _check_encrypted(url: str) -> None:
    """Refuse plaintext URLs: the server sends them, but this machine's operator decides what may cross its network."""
    if is_plaintext_refused(url, "s3"):
        raise StorageUnavailable(
            f"The object store at {urlsplit(url).hostname} does not use https: inputs and outputs of jobs would be"
            " readable on the network. Give it an https address, or allow plaintext on the worker's machine with"
            " PUNCTUAL_ALLOW_PLAINTEXT=s3."
        )


def _check_storage_response(response: httpx.Response) -> None:
    if not response.is_success:
        raise StorageUnavailable(f"The object store refused the transfer with {response.status_code}.")


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
