"""HTTP from a worker to its control plane: every wait bounded, every refusal one of the errors that workers know.

The token goes to the control plane and nowhere else; the object store is spoken to through addresses that are the right
themselves.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

import httpx

from jobs.errors import (
    ArtifactNotUploaded,
    PunctualError,
    StaleAttempt,
    StorageUnavailable,
    WorkerLeaseLost,
    WorkerNameTaken,
)
from workers.errors import ControlPlaneRefused, ControlPlaneUnavailable

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
TRANSFER_SECONDS = 30.0
KEPT_CONNECTIONS = 20
BY_TYPE: Mapping[str, type[PunctualError]] = {
    kind.problem_type: kind for kind in (StaleAttempt, WorkerLeaseLost, WorkerNameTaken)
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
        # Proxies of the environment are for the outside: one that cannot reach loopback must not be asked.
        trusts_environment = urlsplit(url).hostname not in LOOPBACK
        verify = ssl.create_default_context()
        if ca_file:
            # Beside the system's: the object store may well be somebody else's.
            verify.load_verify_locations(ca_file)
        self._http = httpx.Client(
            headers={"User-Agent": "punctual-worker"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # As many as there are runs that have something to say.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS),
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
        seconds: float = ANSWER_SECONDS,
    ) -> JsonObject:
        """`missing`: what it means that there is no such thing."""
        try:
            response = self._http.request(
                method,
                self._base + path,
                json=body,
                headers=self._authorization,
                timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
            )
        except httpx.HTTPError as error:
            raise ControlPlaneUnavailable(f"{self._base} does not answer: {_words(error)}") from error
        return self._read(response, missing)

    def download(self, url: str) -> Iterator[bytes]:
        """What lies at an address of the object store."""
        with (
            _storage_answers(),
            self._http.stream("GET", url, timeout=httpx.Timeout(TRANSFER_SECONDS, connect=CONNECT_SECONDS)) as response,
        ):
            if response.status_code == 404:
                raise ArtifactNotUploaded
            _check_storage(response)
            yield from response.iter_bytes()

    def upload(self, method: str, url: str, headers: Mapping[str, str], body: IO[bytes]) -> None:
        with _storage_answers():
            response = self._http.request(
                method,
                url,
                headers=dict(headers),
                content=body,
                timeout=httpx.Timeout(TRANSFER_SECONDS, connect=CONNECT_SECONDS),
            )
            _check_storage(response)

    def _read(self, response: httpx.Response, missing: type[PunctualError]) -> JsonObject:
        status = response.status_code
        answer = _decode(response)
        if response.is_success and answer is not None:
            return answer
        problem = answer or {}
        said = str(
            problem.get("detail")
            or f"{self._base} does not answer as Punctual does ({status} {response.reason_phrase})."
        )
        if status in {401, 403}:
            self._on_refused(said)
            raise ControlPlaneRefused(said)
        if status == 404:
            raise missing(said)
        if kind := BY_TYPE.get(str(problem.get("type"))):
            raise kind(said)
        if 400 <= status < 500 and status not in {408, 425, 429}:
            # A mistake of ours, or a worker of another version: saying it again would not help.
            raise PunctualError(f"{response.request.url.path} was refused: {said}")
        raise ControlPlaneUnavailable(said)


def _decode(response: httpx.Response) -> JsonObject | None:
    """None: that is no answer of ours, but of something that stands where we thought the server was."""
    if not response.content:
        return {}
    try:
        decoded: object = response.json()
    except ValueError:
        return None
    return decoded if isinstance(decoded, dict) else None


@contextmanager
def _storage_answers() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise StorageUnavailable(f"The object store does not answer: {_words(error)}") from error


def _check_storage(response: httpx.Response) -> None:
    if not response.is_success:
        raise StorageUnavailable(f"The object store refused the transfer with {response.status_code}.")


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
