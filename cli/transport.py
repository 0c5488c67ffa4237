"""HTTP to one server: bounded times, problem+json as errors, the token to that server and nowhere else.

Only what may be done twice is tried again, when no connection could be made or kept: a GET, and a POST with a key by
which the server knows it again. Any other POST whose answer was lost may have been done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import httpx

from cli.answers import JsonObject, as_object
from cli.config import is_loopback
from cli.errors import ClientError, ServerFailureError, UnauthorisedError, UnreachableError

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
PROBE_SECONDS = 5.0
RETRY_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0)
# Who makes too many requests is told when to go on, and does so, but does not wait for ever.
LONGEST_REST_SECONDS = 60
RESTS = 5

# Problems of these types say themselves what to do.
EXPLAINED = "urn:punctual:"
# The only thing that is forbidden to a token and not to whom it belongs: with another one it may be done.
SCOPE = "urn:punctual:scope"

Parameters = Mapping[str, str | int]


@dataclass(frozen=True)
class Probe:
    """What the server answered, whatever it was, and how long that took."""

    status: int
    headers: Mapping[str, str]
    body: JsonObject
    seconds: float


class Transport:
    def __init__(self, url: str, token: str, *, timeout_seconds: float | None = None) -> None:
        """`timeout_seconds`: for whoever would rather have no answer than a late one; nothing is tried again then."""
        self._root = f"{url.rstrip('/')}/"
        self._base = urljoin(self._root, "api/v1/")
        # Proxies of the environment are for the outside: one that cannot reach loopback must not be asked.
        proxied = not is_loopback(url)
        self._http = httpx.Client(
            headers={"User-Agent": "punctual"},
            timeout=timeout_seconds or TIMEOUT,
            trust_env=proxied,
            follow_redirects=False,
        )
        self._pauses = RETRY_PAUSES_SECONDS if timeout_seconds is None else ()
        # Without a token nobody is asked for one: that is how one logs in.
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, parameters: Parameters | None = None) -> JsonObject:
        return self.get_tagged(path, parameters)[0]

    def get_tagged(self, path: str, parameters: Parameters | None = None) -> tuple[JsonObject, str]:
        """With its ETag, for `send`."""
        with self.stream(path, parameters) as response:
            _read(response)
            return _decode(response), response.headers.get("ETag", "")

    def send(
        self, method: str, path: str, body: JsonObject | None = None, *, key: str | None = None, tag: str = ""
    ) -> JsonObject:
        """`key`: the server does it once, however often it is sent with the same one. `tag`: only if it is as read."""
        named = {"Idempotency-Key": key, "If-Match": tag}
        request = self._http.build_request(
            method,
            urljoin(self._base, path),
            json=body if body is not None else {},
            headers={**self._authorization, **{name: value for name, value in named.items() if value}},
        )
        with self._answer(request, pauses=() if key is None else self._pauses) as response:
            _read(response)
            return _decode(response)

    def probe(self, path: str) -> Probe:
        """A question to the server itself, beside the API and without the token; a failure is an answer, too."""
        begun = time.monotonic()
        try:
            response = self._http.get(urljoin(self._root, path), timeout=PROBE_SECONDS)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _unreachable(self._http.build_request("GET", self._root), error) from error
        except httpx.DecodingError as error:
            raise ServerFailureError(f"What {urljoin(self._root, path)} answered cannot be decoded: {error}.") from None
        try:
            body: object = response.json()
        except (ValueError, RecursionError):
            body = {}
        told: JsonObject = body if isinstance(body, dict) else {}
        return Probe(response.status_code, response.headers, told, time.monotonic() - begun)

    @contextmanager
    def stream(self, path: str, parameters: Parameters | None = None) -> Iterator[httpx.Response]:
        """A GET whose body is read by the caller."""
        request = self._http.build_request(
            "GET", urljoin(self._base, path), params=parameters, headers=self._authorization
        )
        with self._answer(request, pauses=self._pauses) as response:
            yield response

    @contextmanager
    def download(self, url: str) -> Iterator[Iterator[bytes]]:
        """A GET of an address the server gave, most often of a storage that must not see the token."""
        absolute = urljoin(self._root, url)
        ours = urlsplit(absolute)[:2] == urlsplit(self._root)[:2]
        request = self._http.build_request("GET", absolute, headers=self._authorization if ours else {})
        with _storage_errors(), self._answer(request, pauses=self._pauses) as response:
            yield pieces_of(response)

    def upload(self, method: str, url: str, headers: Mapping[str, str], content: Iterable[bytes]) -> None:
        """The bytes of an artifact, to the storage: its presigned address is all the right it needs."""
        request = self._http.build_request(method, url, headers=dict(headers), content=content)
        with _storage_errors(), self._answer(request, rests=0) as response:
            _read(response)

    @contextmanager
    def _answer(
        self, request: httpx.Request, *, pauses: tuple[float, ...] = (), rests: int = RESTS
    ) -> Iterator[httpx.Response]:
        response = self._connect(request, pauses)
        while rests and (rest := _rest_asked_for(response)) is not None:
            response.close()
            time.sleep(rest)
            rests, response = rests - 1, self._connect(request, pauses)
        try:
            if not response.is_success:
                _read(response)
                raise problem_of(response)
            yield response
        finally:
            response.close()

    def _connect(self, request: httpx.Request, pauses: tuple[float, ...]) -> httpx.Response:
        for pause in (*pauses, None):
            try:
                response = self._http.send(request, stream=True)
                if pause is None or not _in_progress(response):
                    return response
                response.close()
                time.sleep(pause)
            except (
                httpx.ConnectError,
                httpx.ConnectTimeout,
                httpx.RemoteProtocolError,
                httpx.ReadError,
            ) as error:
                if pause is None:
                    raise _unreachable(request, error) from error
                time.sleep(pause)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise _unreachable(request, error) from error
        raise AssertionError("the last round returns or raises")


def _in_progress(response: httpx.Response) -> bool:
    """Whether the server is still at work on the same request, whose answer we did not get."""
    return response.status_code == httpx.codes.CONFLICT and "Retry-After" in response.headers


def _rest_asked_for(response: httpx.Response) -> int | None:
    """The seconds after which to go on, of who has made too many requests: nothing was done for this one."""
    said = response.headers.get("Retry-After", "")
    if response.status_code != httpx.codes.TOO_MANY_REQUESTS or not (said.isascii() and said.isdigit()):
        return None
    return int(said) if len(said) < 4 and int(said) <= LONGEST_REST_SECONDS else None


@contextmanager
def _storage_errors() -> Iterator[None]:
    """What the storage refuses has nothing to do with the token, and must not be blamed on it."""
    try:
        yield
    except ClientError as error:
        if error.status is None:
            raise
        raise ServerFailureError(
            f"The storage refused the transfer with {error.status}: try again.", status=error.status
        ) from None


def pieces_of(response: httpx.Response) -> Iterator[bytes]:
    """The body as it comes; a connection that breaks on the way is the same error as one never made."""
    try:
        yield from response.iter_bytes()
    except httpx.TransportError as error:
        raise _unreachable(response.request, error) from error
    except httpx.DecodingError:
        raise _undecodable(response) from None


def _undecodable(response: httpx.Response) -> ServerFailureError:
    coding = response.headers.get("Content-Encoding", "")
    return ServerFailureError(
        f"What {response.request.url} answered is not encoded as it says ({coding}): is there a broken proxy between?",
        status=response.status_code,
    )


def _unreachable(request: httpx.Request, error: Exception) -> UnreachableError:
    address = f"{request.url.scheme}://{request.url.netloc.decode()}"
    if isinstance(error, httpx.ReadTimeout):
        return UnreachableError(f"The server at {address} did not answer in time: try again.")
    why = str(error) or type(error).__name__
    return UnreachableError(f"The server at {address} cannot be reached ({why}): is it up?")


def _read(response: httpx.Response) -> None:
    try:
        response.read()
    except httpx.TransportError as error:
        raise _unreachable(response.request, error) from error
    except httpx.DecodingError:
        raise _undecodable(response) from None


def _decode(response: httpx.Response) -> JsonObject:
    if not response.content:
        return {}
    try:
        decoded: object = response.json()
    except (ValueError, RecursionError):
        raise ServerFailureError(f"{response.request.url} did not answer JSON: is it a Punctual server?") from None
    return as_object(decoded)


def problem_of(response: httpx.Response) -> ClientError:
    """The error that an answer other than 2xx means."""
    status = response.status_code
    try:
        body: object = response.json()
    except (ValueError, RecursionError):
        body = {}
    problem: JsonObject = body if isinstance(body, dict) else {}
    said = _sentence(problem)
    kind = str(problem.get("type", ""))
    if status == httpx.codes.UNAUTHORIZED or kind == SCOPE:
        if kind.startswith(EXPLAINED):
            return UnauthorisedError(said, status=status)
        reason = said.rstrip(".") or "The server refused the token"
        return UnauthorisedError(f"{reason}: set PUNCTUAL_TOKEN to one that is good, or log in.", status=status)
    if elsewhere := _moved_to(response):
        return ServerFailureError(
            f"The server answered {status}, it is at {elsewhere}: set PUNCTUAL_URL to that, or log in there.",
            status=status,
        )
    if not 400 <= status < 500:
        answer = f"{status} {response.reason_phrase}".strip()
        return ServerFailureError(f"The server answered {answer}{f': {said}' if said else '.'}", status=status)
    refusals = _refusals(problem.get("errors"))
    if refusals:
        field, first = refusals[0]
        rest = [f"{name}: {message}" if name else message for name, message in refusals[1:]]
        return ClientError("; ".join([first, *rest]), field=field or None, status=status)
    if not problem:
        where = _root_of(str(response.request.url))
        said = f"{where} answered {status}, and not as Punctual does: is the address right?"
    return ClientError(said or f"The server refused the request with {status}.", status=status)


def _moved_to(response: httpx.Response) -> str | None:
    """Where a redirect leads, without what was asked for there: the token is not sent after it."""
    if not response.has_redirect_location:
        return None
    asked = str(response.request.url)
    try:
        target = urljoin(asked, response.headers["Location"])
        root = _root_of(target)
        return root if target.startswith(("http:", "https:")) and root != _root_of(asked) else None
    except ValueError:
        return None


def _root_of(address: str) -> str:
    parts = urlsplit(address)
    before, found, _ = parts.path.partition("/api/v1/")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{before if found else ''}"


def _sentence(problem: JsonObject) -> str:
    for key in ("detail", "title"):
        if isinstance(text := problem.get(key), str) and text:
            return text
    return ""


def _refusals(errors: object) -> list[tuple[str, str]]:
    entries: list[object] = errors if isinstance(errors, list) else []
    return [
        (str(entry.get("field") or ""), message)
        for entry in entries
        if isinstance(entry, dict) and isinstance(message := entry.get("message"), str)
    ]
