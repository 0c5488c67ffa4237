"""Presigned URLs permit exactly the signed request: any other stores and reads nothing."""

from __future__ import annotations

import base64
import hashlib
import io
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import botocore.auth
import httpx
import pytest
from django.conf import settings

from jobs.domain import limits
from jobs.storage import s3

pytestmark = pytest.mark.usefixtures("bucket")


@dataclass(frozen=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str]
    data: bytes

    def send(self) -> int:
        with httpx.Client(timeout=10) as client:
            try:
                return client.request(
                    self.method, self.url, headers=dict(self.headers), content=self.data or None
                ).status_code
            except httpx.RemoteProtocolError:
                # A closed connection is a refusal, too.
                return 400
            except httpx.LocalProtocolError:
                pytest.fail("The request was not even sent")

    def with_path(self, path: str) -> Request:
        return replace(self, url=urlunsplit(urlsplit(self.url)._replace(path=path)))

    def with_headers(self, **headers: str) -> Request:
        return replace(self, headers={**self.headers, **headers})

    def without(self, header: str) -> Request:
        return replace(self, headers={name: value for name, value in self.headers.items() if name != header})

    def with_query(self, **query: str) -> Request:
        parts = urlsplit(self.url)
        return replace(self, url=urlunsplit(parts._replace(query=urlencode(dict(parse_qsl(parts.query)) | query))))


def fresh() -> bytes:
    return secrets.token_bytes(50)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def path_of(key: str) -> str:
    return f"/{settings.PUNCTUAL_S3_BUCKET}/{key}"


def stored() -> set[str]:
    """Return all keys, and check that no other bucket was created."""
    client = s3._client()
    buckets = [each["Name"] for each in client.list_buckets()["Buckets"]]
    assert buckets == [settings.PUNCTUAL_S3_BUCKET]
    return {each.key for page in s3.list_objects("", before="~") for each in page}


KINDS = ["artifact", "output"]


def make_upload(kind: str) -> tuple[Request, str]:
    """Return a valid upload request and its key."""
    data = fresh()
    key = s3.upload_key(uuid4()) if kind == "artifact" else s3.output_key(uuid4(), 1, sha(data))
    url, headers = s3.presign_upload(key, sha(data), len(data))
    return Request("PUT", url, headers, data), key


@pytest.fixture(params=KINDS)
def upload(request: pytest.FixtureRequest) -> tuple[Request, str]:
    return make_upload(request.param)


@contextmanager
def expired_signature(seconds: int) -> Iterator[None]:
    """Sign as of a second before the lifetime, so that the URL has just expired."""
    past = (datetime.now(UTC) - timedelta(seconds=seconds + 1)).replace(tzinfo=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: past)
        yield


def other_content(request: Request, data: bytes) -> Request:
    checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return replace(request, data=data).with_headers(**{"x-amz-checksum-sha256": checksum})


MISUSES: dict[str, Callable[[Request], Request]] = {
    "other bytes": lambda r: replace(r, data=fresh()),
    "other bytes, and their own checksum": lambda r: other_content(r, fresh()),
    "more bytes": lambda r: replace(r, data=r.data + b"+").with_headers(**{"Content-Length": str(len(r.data) + 1)}),
    "fewer bytes": lambda r: replace(r, data=r.data[:-1]).with_headers(**{"Content-Length": str(len(r.data) - 1)}),
    "no bytes": lambda r: replace(r, data=b"").with_headers(**{"Content-Length": "0"}),
    "another key": lambda r: r.with_path(path_of(s3.artifact_key(sha(r.data)))),
    "a key that leaves its folder": lambda r: r.with_path(path_of(f"uploads/../{s3.artifact_key(sha(r.data))}")),
    "another bucket": lambda r: r.with_path("/another/key"),
    "another method": lambda r: replace(r, method="POST"),
    "another host": lambda r: r.with_headers(Host="files.example"),
    "without its checksum": lambda r: r.without("x-amz-checksum-sha256"),
    "a longer life": lambda r: r.with_query(**{"X-Amz-Expires": "604800"}),
    "fewer signed headers": lambda r: r.without("x-amz-checksum-sha256").with_query(**{"X-Amz-SignedHeaders": "host"}),
    "another signature": lambda r: r.with_query(**{"X-Amz-Signature": "0" * 64}),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_upload_that_differs_from_the_signature_stores_nothing(upload: tuple[Request, str], misuse: str) -> None:
    request, key = upload
    before = stored()
    assert MISUSES[misuse](request).send() >= 400
    assert stored() == before
    assert request.send() == 200, "the unchanged request is accepted"
    assert stored() == before | {key}


@pytest.mark.parametrize("kind", KINDS)
def test_expired_upload_is_refused(kind: str) -> None:
    before = stored()
    with expired_signature(limits.UPLOAD_URL_SECONDS):
        request, _ = make_upload(kind)
    assert request.send() == 403
    assert stored() == before


def test_upload_url_neither_reads_nor_deletes(upload: tuple[Request, str]) -> None:
    request, key = upload
    assert request.send() == 200
    for method in ("GET", "HEAD", "DELETE"):
        assert replace(request, method=method, data=b"").without("Content-Length").send() == 403
    assert key in stored()


@pytest.fixture
def download() -> tuple[Request, str]:
    data = fresh()
    key = s3.output_key(uuid4(), 1, sha(data))
    s3.put_output(key, sha(data), len(data), io.BytesIO(data))
    return Request("GET", s3.presign_download(key, "page.html"), {}, b""), key


@pytest.mark.parametrize(
    "misuse",
    [
        lambda r: replace(r, method="PUT", data=b"evil"),
        lambda r: replace(r, method="DELETE"),
        lambda r: replace(r, method="POST", data=b"evil"),
        lambda r: r.with_path(path_of(s3.output_key(uuid4(), 1, "0" * 64))),
        lambda r: r.with_path(f"/{settings.PUNCTUAL_S3_BUCKET}"),
        lambda r: r.with_headers(Host="files.example"),
        # Otherwise a user's HTML would be rendered under our origin.
        lambda r: r.with_query(**{"response-content-type": "text/html"}),
        lambda r: r.with_query(**{"response-content-disposition": "inline"}),
        lambda r: r.with_query(**{"X-Amz-Expires": "604800"}),
    ],
    ids=["put", "delete", "post", "key", "listing", "host", "type", "disposition", "expiry"],
)
def test_download_url_permits_nothing_else(download: tuple[Request, str], misuse: Callable[[Request], Request]) -> None:
    request, key = download
    before = stored()
    assert misuse(request).send() >= 400
    assert stored() == before
    assert key in before
    assert request.send() == 200


def test_expired_download_is_refused() -> None:
    data = fresh()
    s3.put_artifact(sha(data), data)
    with expired_signature(limits.DOWNLOAD_URL_SECONDS):
        url = s3.presign_download(s3.artifact_key(sha(data)), "artifact")
    assert Request("GET", url, {}, b"").send() == 403


def test_output_urls_are_short_lived() -> None:
    query = dict(parse_qsl(urlsplit(s3.presign_download("key", "name")).query))
    assert int(query["X-Amz-Expires"]) <= 300


@pytest.mark.parametrize(
    "name",
    ["evil\r\nSet-Cookie: a=b", "a\"; filename*=UTF-8''evil.html; x=\"", "\u202egnp.exe", "a\\..\\b", "\0", "é" * 200],
)
def test_hostile_filename_is_sanitised(name: str) -> None:
    data = fresh()
    key = s3.output_key(uuid4(), 1, sha(data))
    s3.put_output(key, sha(data), len(data), io.BytesIO(data))
    answer = httpx.get(s3.presign_download(key, name), timeout=10)
    assert answer.content == data
    assert answer.headers["Content-Type"] == "application/octet-stream"
    disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith('attachment; filename="')
    filename = disposition.removeprefix('attachment; filename="').removesuffix('"')
    assert set(filename) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert "Set-Cookie" not in answer.headers
