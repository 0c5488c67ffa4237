"""An address takes or gives what it was signed for: whatever else is tried, nothing is stored and nothing is read."""

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

from jobs import conf, storage

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
                # It hung up on us, which is a refusal, too.
                return 400
            except httpx.LocalProtocolError:
                pytest.fail("The request was not even sent")

    def at(self, path: str) -> Request:
        return replace(self, url=urlunsplit(urlsplit(self.url)._replace(path=path)))

    def saying(self, **headers: str) -> Request:
        return replace(self, headers={**self.headers, **headers})

    def without(self, header: str) -> Request:
        return replace(self, headers={name: value for name, value in self.headers.items() if name != header})

    def asking(self, **query: str) -> Request:
        parts = urlsplit(self.url)
        return replace(self, url=urlunsplit(parts._replace(query=urlencode(dict(parse_qsl(parts.query)) | query))))


def fresh() -> bytes:
    return secrets.token_bytes(50)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def path_of(key: str) -> str:
    return f"/{settings.PUNCTUAL_S3_BUCKET}/{key}"


def stored() -> set[str]:
    """Everything, in this bucket and any other that somebody may have made."""
    client = storage._client()
    buckets = [each["Name"] for each in client.list_buckets()["Buckets"]]
    assert buckets == [settings.PUNCTUAL_S3_BUCKET]
    return {each.key for page in storage.list_objects("", before="~") for each in page}


KINDS = ["artifact", "output"]


def make_upload(kind: str) -> tuple[Request, str]:
    """An upload as it is meant to be, and its key."""
    data = fresh()
    if kind == "artifact":
        artifact_id = uuid4()
        key = storage.upload_key(artifact_id)
        url, headers = storage.presign_artifact_upload(artifact_id, sha(data), len(data))
    else:
        key = storage.output_key(uuid4(), 1, sha(data))
        url, headers = storage.presign_output_upload(key, sha(data), len(data))
    return Request("PUT", url, headers, data), key


@pytest.fixture(params=KINDS)
def upload(request: pytest.FixtureRequest) -> tuple[Request, str]:
    return make_upload(request.param)


@contextmanager
def long_ago(seconds: int) -> Iterator[None]:
    """What is signed meanwhile was signed a second longer ago than it is good for."""
    past = (datetime.now(UTC) - timedelta(seconds=seconds + 1)).replace(tzinfo=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: past)
        yield


def other_content(request: Request, data: bytes) -> Request:
    checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return replace(request, data=data).saying(**{"x-amz-checksum-sha256": checksum})


MISUSES: dict[str, Callable[[Request], Request]] = {
    "other bytes": lambda r: replace(r, data=fresh()),
    "other bytes, and their own checksum": lambda r: other_content(r, fresh()),
    "more bytes": lambda r: replace(r, data=r.data + b"+").saying(**{"Content-Length": str(len(r.data) + 1)}),
    "fewer bytes": lambda r: replace(r, data=r.data[:-1]).saying(**{"Content-Length": str(len(r.data) - 1)}),
    "no bytes": lambda r: replace(r, data=b"").saying(**{"Content-Length": "0"}),
    "another key": lambda r: r.at(path_of(storage.artifact_key(sha(r.data)))),
    "a key that leaves its folder": lambda r: r.at(path_of(f"uploads/../{storage.artifact_key(sha(r.data))}")),
    "another bucket": lambda r: r.at("/another/key"),
    "another method": lambda r: replace(r, method="POST"),
    "another host": lambda r: r.saying(Host="files.example"),
    "without its checksum": lambda r: r.without("x-amz-checksum-sha256"),
    "a longer life": lambda r: r.asking(**{"X-Amz-Expires": "604800"}),
    "fewer signed headers": lambda r: r.without("x-amz-checksum-sha256").asking(**{"X-Amz-SignedHeaders": "host"}),
    "another signature": lambda r: r.asking(**{"X-Amz-Signature": "0" * 64}),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_an_upload_that_is_not_what_was_signed_is_refused_and_leaves_nothing(
    upload: tuple[Request, str], misuse: str
) -> None:
    request, key = upload
    before = stored()
    assert MISUSES[misuse](request).send() >= 400
    assert stored() == before
    assert request.send() == 200, "as it was meant, it is taken"
    assert stored() == before | {key}


@pytest.mark.parametrize("kind", KINDS)
def test_an_upload_after_its_time_is_refused(kind: str) -> None:
    before = stored()
    with long_ago(conf.UPLOAD_URL_SECONDS):
        request, _ = make_upload(kind)
    assert request.send() == 403
    assert stored() == before


def test_an_upload_address_neither_reads_nor_deletes(upload: tuple[Request, str]) -> None:
    request, key = upload
    assert request.send() == 200
    for method in ("GET", "HEAD", "DELETE"):
        assert replace(request, method=method, data=b"").without("Content-Length").send() == 403
    assert key in stored()


@pytest.fixture
def download() -> tuple[Request, str]:
    data = fresh()
    key = storage.output_key(uuid4(), 1, sha(data))
    storage.put_output(key, sha(data), len(data), io.BytesIO(data))
    return Request("GET", storage.presign_download(key, "page.html"), {}, b""), key


@pytest.mark.parametrize(
    "misuse",
    [
        lambda r: replace(r, method="PUT", data=b"evil"),
        lambda r: replace(r, method="DELETE"),
        lambda r: replace(r, method="POST", data=b"evil"),
        lambda r: r.at(path_of(storage.output_key(uuid4(), 1, "0" * 64))),
        lambda r: r.at(f"/{settings.PUNCTUAL_S3_BUCKET}"),
        lambda r: r.saying(Host="files.example"),
        # Else a page of somebody's making would be shown as ours.
        lambda r: r.asking(**{"response-content-type": "text/html"}),
        lambda r: r.asking(**{"response-content-disposition": "inline"}),
        lambda r: r.asking(**{"X-Amz-Expires": "604800"}),
    ],
    ids=["put", "delete", "post", "key", "listing", "host", "type", "disposition", "expiry"],
)
def test_a_download_address_does_nothing_else(
    download: tuple[Request, str], misuse: Callable[[Request], Request]
) -> None:
    request, key = download
    before = stored()
    assert misuse(request).send() >= 400
    assert stored() == before
    assert key in before
    assert request.send() == 200


def test_a_download_after_its_time_is_refused() -> None:
    data = fresh()
    storage.put_artifact(sha(data), data)
    with long_ago(conf.DOWNLOAD_URL_SECONDS):
        url = storage.presign_download(storage.artifact_key(sha(data)), "artifact")
    assert Request("GET", url, {}, b"").send() == 403


def test_addresses_of_outputs_are_short_lived() -> None:
    query = dict(parse_qsl(urlsplit(storage.presign_download("key", "name")).query))
    assert int(query["X-Amz-Expires"]) <= 300


@pytest.mark.parametrize(
    "name",
    ["evil\r\nSet-Cookie: a=b", "a\"; filename*=UTF-8''evil.html; x=\"", "\u202egnp.exe", "a\\..\\b", "\0", "é" * 200],
)
def test_a_hostile_name_stays_a_name(name: str) -> None:
    data = fresh()
    key = storage.output_key(uuid4(), 1, sha(data))
    storage.put_output(key, sha(data), len(data), io.BytesIO(data))
    answer = httpx.get(storage.presign_download(key, name), timeout=10)
    assert answer.content == data
    assert answer.headers["Content-Type"] == "application/octet-stream"
    disposition = answer.headers["Content-Disposition"]
    assert disposition.startswith('attachment; filename="')
    told = disposition.removeprefix('attachment; filename="').removesuffix('"')
    assert set(told) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert "Set-Cookie" not in answer.headers
