"""HTTP to one server: timeouts, retries, problem+json as errors; only that server gets the token.

After a connection error only idempotent requests are retried: GETs, and POSTs with an Idempotency-Key. Any other POST
may have been carried out although its answer was lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import httpx

from punctual_client.config import is_loopback
from punctual_client.errors import ApiError, ServerError, UnauthorisedError, UnreachableError
from punctual_client.json_fields import JsonObject, as_object

REQUEST_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
PROBE_TIMEOUT_SECONDS = 5.0
RETRY_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0)
# When a server process dies, its request keeps the idempotency key for 30 seconds and answers 409 meanwhile.
MAX_IDEMPOTENCY_WAIT_SECONDS = 40.0
# A rate-limited request is repeated after Retry-After, within these limits.
MAX_RETRY_AFTER_SECONDS = 60
MAX_RATE_LIMIT_RETRIES = 5

# The messages of these problem types already say what to do.
PUNCTUAL_PROBLEM_PREFIX = "urn:punctual:"
# The token lacks the scope, although its user may have the right.
SCOPE_PROBLEM_TYPE = "urn:punctual:scope"

Parameters = Mapping[str, str | int]


@dataclass(frozen=True)
class ProbeResult:
    """Any answer of the server, with how long it took."""

    status: int
    headers: Mapping[str, str]
    body: JsonObject
    seconds: float


class Transport:
    def __init__(self, url: str, token: str, *, timeout_seconds: float | None = None) -> None:
        """With `timeout_seconds` requests are not retried: a late answer is of no use."""
        self._root = f"{url.rstrip('/')}/"
        self._base = urljoin(self._root, "api/v1/")
        # A proxy from the environment cannot reach this machine's loopback.
        proxied = not is_loopback(url)
        self._http = httpx.Client(
            headers={"User-Agent": "punctual"},
            timeout=timeout_seconds or REQUEST_TIMEOUT,
            trust_env=proxied,
            follow_redirects=False,
        )
        self._pauses = RETRY_PAUSES_SECONDS if timeout_seconds is None else ()
        # login sends no token.
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, parameters: Parameters | None = None) -> JsonObject:
        return self.get_with_etag(path, parameters)[0]

    def get_with_etag(self, path: str, parameters: Parameters | None = None) -> tuple[JsonObject, str]:
        """Return the answer and its ETag, which `send` takes as `tag`."""
        with self.stream(path, parameters) as response:
            _read_body(response)
            return _decode_json(response), response.headers.get("ETag", "")

    def send(
        self, method: str, path: str, body: JsonObject | None = None, *, key: str | None = None, tag: str = ""
    ) -> JsonObject:
        """Send a JSON body. `key` makes the request idempotent; `tag` makes it conditional on an ETag."""
        optional = {"Idempotency-Key": key, "If-Match": tag}
        request = self._http.build_request(
            method,
            urljoin(self._base, path),
            json=body if body is not None else {},
            headers={**self._authorization, **{name: value for name, value in optional.items() if value}},
        )
        with self._open(request, pauses=() if key is None else self._pauses) as response:
            _read_body(response)
            return _decode_json(response)

    def probe(self, path: str) -> ProbeResult:
        """Request a health endpoint, without the token; any status is a result."""
        started = time.monotonic()
        try:
            response = self._http.get(urljoin(self._root, path), timeout=PROBE_TIMEOUT_SECONDS)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise _unreachable_error(self._http.build_request("GET", self._root), error) from error
        except httpx.DecodingError as error:
            raise ServerError(f"The answer of {urljoin(self._root, path)} cannot be decoded: {error}.") from None
        try:
            body: object = response.json()
        except (ValueError, RecursionError):
            body = {}
        fields: JsonObject = body if isinstance(body, dict) else {}
        return ProbeResult(response.status_code, response.headers, fields, time.monotonic() - started)

    @contextmanager
    def stream(self, path: str, parameters: Parameters | None = None) -> Iterator[httpx.Response]:
        """Open a GET; the caller reads the body."""
        request = self._http.build_request(
            "GET", urljoin(self._base, path), params=parameters, headers=self._authorization
        )
        with self._open(request, pauses=self._pauses) as response:
            yield response

    @contextmanager
    def stream_bytes(self, path: str, parameters: Parameters | None = None) -> Iterator[Iterator[bytes]]:
        """Open a GET as pieces of bytes."""
        with self.stream(path, parameters) as response:
            yield _iterate_body(response)

    @contextmanager
    def download(self, url: str) -> Iterator[Iterator[bytes]]:
        """Open an address that the server gave as pieces; the object store must not see the token."""
        absolute = urljoin(self._root, url)
        same_server = urlsplit(absolute)[:2] == urlsplit(self._root)[:2]
        request = self._http.build_request("GET", absolute, headers=self._authorization if same_server else {})
        with _translate_storage_errors(), self._open(request, pauses=self._pauses) as response:
            yield _iterate_body(response)

    def upload(self, method: str, url: str, headers: Mapping[str, str], content: Iterable[bytes]) -> None:
        """Upload the bytes of an artifact to the object store, whose presigned address needs no token."""
        request = self._http.build_request(method, url, headers=dict(headers), content=content)
        with _translate_storage_errors(), self._open(request, rate_limit_retries=0) as response:
            _read_body(response)

    @contextmanager
    def _open(
        self,
        request: httpx.Request,
        *,
        pauses: tuple[float, ...] = (),
        rate_limit_retries: int = MAX_RATE_LIMIT_RETRIES,
    ) -> Iterator[httpx.Response]:
        response = self._send(request, pauses)
        while rate_limit_retries and (delay := _retry_after_seconds(response)) is not None:
            response.close()
            time.sleep(delay)
            rate_limit_retries, response = rate_limit_retries - 1, self._send(request, pauses)
        try:
            if not response.is_success:
                _read_body(response)
                raise error_from_response(response)
            yield response
        finally:
            response.close()

    def _send(self, request: httpx.Request, pauses: tuple[float, ...]) -> httpx.Response:
        remaining_pauses = iter(pauses)
        until = time.monotonic() + MAX_IDEMPOTENCY_WAIT_SECONDS if pauses else 0
        while True:
            try:
                response = self._http.send(request, stream=True)
            except (
                httpx.ConnectError,
                httpx.ConnectTimeout,
                httpx.RemoteProtocolError,
                httpx.ReadError,
            ) as error:
                if (pause := next(remaining_pauses, None)) is None:
                    raise _unreachable_error(request, error) from error
                time.sleep(pause)
                continue
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise _unreachable_error(request, error) from error
            # 409: an earlier copy of this request is in progress, or the process that handled it has died.
            delay = _retry_after_seconds(response, httpx.codes.CONFLICT)
            if delay is None or time.monotonic() + delay > until:
                return response
            response.close()
            time.sleep(max(delay, pauses[0]))


def _retry_after_seconds(response: httpx.Response, status: httpx.codes = httpx.codes.TOO_MANY_REQUESTS) -> int | None:
    """Return when to repeat a request that was answered with `status`, if it is soon enough."""
    header = response.headers.get("Retry-After", "")
    if response.status_code != status or not (header.isascii() and header.isdigit()):
        return None
    return int(header) if len(header) < 4 and int(header) <= MAX_RETRY_AFTER_SECONDS else None


@contextmanager
def _translate_storage_errors() -> Iterator[None]:
    """Report a refusal of the object store as its own, not as one of the token."""
    try:
        yield
    except ApiError as error:
        if error.status is None:
            raise
        raise ServerError(
            f"The object store refused the transfer with {error.status}: try again.", status=error.status
        ) from None


def _iterate_body(response: httpx.Response) -> Iterator[bytes]:
    """Yield the body as it arrives; a broken connection is an `UnreachableError`."""
    try:
        yield from response.iter_bytes()
    except httpx.TransportError as error:
        raise _unreachable_error(response.request, error) from error
    except httpx.DecodingError:
        raise _undecodable_error(response) from None


def _undecodable_error(response: httpx.Response) -> ServerError:
    coding = response.headers.get("Content-Encoding", "")
    return ServerError(
        f"The answer of {response.request.url} is not valid {coding}: is there a broken proxy in between?",
        status=response.status_code,
    )


def _unreachable_error(request: httpx.Request, error: Exception) -> UnreachableError:
    address = f"{request.url.scheme}://{request.url.netloc.decode()}"
    if isinstance(error, httpx.ReadTimeout):
        return UnreachableError(f"The server at {address} did not answer in time: try again.")
    reason = str(error) or type(error).__name__
    return UnreachableError(f"The server at {address} cannot be reached ({reason}): is it up?")


def _read_body(response: httpx.Response) -> None:
    try:
        response.read()
    except httpx.TransportError as error:
        raise _unreachable_error(response.request, error) from error
    except httpx.DecodingError:
        raise _undecodable_error(response) from None


def _decode_json(response: httpx.Response) -> JsonObject:
    if not response.content:
        return {}
    try:
        decoded: object = response.json()
    except (ValueError, RecursionError):
        raise ServerError(f"{response.request.url} did not answer JSON: is it a Punctual server?") from None
    return as_object(decoded)


def error_from_response(response: httpx.Response) -> ApiError:
    """Return the error for an answer other than 2xx."""
    status = response.status_code
    try:
        body: object = response.json()
    except (ValueError, RecursionError):
        body = {}
    problem: JsonObject = body if isinstance(body, dict) else {}
    detail = _problem_text(problem)
    kind = str(problem.get("type", ""))
    if status == httpx.codes.UNAUTHORIZED or kind == SCOPE_PROBLEM_TYPE:
        if kind.startswith(PUNCTUAL_PROBLEM_PREFIX):
            return UnauthorisedError(detail, status=status)
        reason = detail.rstrip(".") or "The server refused the token"
        return UnauthorisedError(f"{reason}: set PUNCTUAL_TOKEN to a valid one, or log in.", status=status)
    if new_root := _redirect_target(response):
        return ServerError(
            f"The server answered {status}, it has moved to {new_root}: set PUNCTUAL_URL to that, or log in there.",
            status=status,
        )
    if not 400 <= status < 500:
        answer = f"{status} {response.reason_phrase}".strip()
        return ServerError(f"The server answered {answer}{f': {detail}' if detail else '.'}", status=status)
    field_errors = _field_errors(problem.get("errors"))
    if field_errors:
        field, first = field_errors[0]
        rest = [f"{name}: {message}" if name else message for name, message in field_errors[1:]]
        return ApiError("; ".join([first, *rest]), field=field or None, status=status)
    if not problem:
        root = _server_root(str(response.request.url))
        detail = f"{root} answered {status}, and not as Punctual does: is the address right?"
    return ApiError(detail or f"The server refused the request with {status}.", status=status)


def _redirect_target(response: httpx.Response) -> str | None:
    """Return the server that a redirect leads to; it is not followed, for the token would be sent there."""
    if not response.has_redirect_location:
        return None
    requested = str(response.request.url)
    try:
        target = urljoin(requested, response.headers["Location"])
        root = _server_root(target)
        return root if target.startswith(("http:", "https:")) and root != _server_root(requested) else None
    except ValueError:
        return None


def _server_root(address: str) -> str:
    parts = urlsplit(address)
    before, found, _ = parts.path.partition("/api/v1/")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{before if found else ''}"


def _problem_text(problem: JsonObject) -> str:
    for key in ("detail", "title"):
        if isinstance(text := problem.get(key), str) and text:
            return text
    return ""


def _field_errors(errors: object) -> list[tuple[str, str]]:
    entries: list[object] = errors if isinstance(errors, list) else []
    return [
        (str(entry.get("field") or ""), message)
        for entry in entries
        if isinstance(entry, dict) and isinstance(message := entry.get("message"), str)
    ]
