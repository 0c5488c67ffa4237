"""The object store keeps what was announced and nothing else, and says so in our own errors."""

from __future__ import annotations

import hashlib
import io
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest
from botocore.exceptions import FlexibleChecksumError
from django.conf import settings
from pytest_django import Settings

from jobs import storage
from jobs.errors import ArtifactHashMismatch, ArtifactNotUploaded, StorageUnavailable

pytestmark = pytest.mark.usefixtures("bucket")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fresh(size: int = 40) -> bytes:
    return secrets.token_bytes(size)


def stored(sha256: str) -> bytes:
    return b"".join(storage.read_artifact(sha256))


def put(url: str, headers: dict[str, str], data: bytes) -> int:
    request = urllib.request.Request(url, data=data, method="PUT", headers=headers)  # noqa: S310 - our own store
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("size", [0, 1, 3 * 1024 * 1024 + 7])
def test_an_artifact_is_read_back(size: int) -> None:
    data = fresh(size)
    storage.put_artifact(sha(data), data)
    assert stored(sha(data)) == data
    assert storage.artifact_size(sha(data)) == size


def test_an_artifact_whose_bytes_are_others_is_refused_by_the_store() -> None:
    with pytest.raises(StorageUnavailable):
        storage.put_artifact(sha(b"announced" + fresh()), b"other bytes")


def test_a_missing_artifact_has_no_size_and_cannot_be_read() -> None:
    assert storage.artifact_size(sha(fresh())) is None
    with pytest.raises(ArtifactNotUploaded):
        stored(sha(fresh()))


def test_a_presigned_upload_takes_exactly_the_announced_bytes() -> None:
    data, artifact_id = fresh(), uuid4()
    url, headers = storage.presign_artifact_upload(artifact_id, sha(data), len(data))
    assert put(url, headers, b"x" * len(data)) >= 400
    longer = headers | {"Content-Length": str(len(data) + 1)}
    assert put(url, longer, data + b"+") >= 400
    with pytest.raises(ArtifactNotUploaded):
        storage.adopt_upload(artifact_id, sha(data), len(data))
    assert put(url, headers, data) == 200
    assert storage.artifact_size(sha(data)) is None, "an upload is no artifact until it was adopted"


def test_an_adopted_upload_is_filed_under_its_hash_once() -> None:
    data, artifact_id = fresh(), uuid4()
    url, headers = storage.presign_artifact_upload(artifact_id, sha(data), len(data))
    put(url, headers, data)
    storage.adopt_upload(artifact_id, sha(data), len(data))
    assert stored(sha(data)) == data
    with pytest.raises(ArtifactNotUploaded):
        storage.adopt_upload(artifact_id, sha(data), len(data))


@pytest.mark.parametrize("wrong", ["hash", "size"])
def test_an_upload_that_is_not_what_was_announced_is_not_adopted(wrong: str) -> None:
    data, artifact_id = fresh(), uuid4()
    url, headers = storage.presign_artifact_upload(artifact_id, sha(data), len(data))
    put(url, headers, data)
    claimed = sha(fresh()) if wrong == "hash" else sha(data)
    with pytest.raises(ArtifactHashMismatch):
        storage.adopt_upload(artifact_id, claimed, len(data) + (wrong == "size"))
    assert storage.artifact_size(claimed) is None


def test_an_output_is_downloaded_as_a_file_and_never_rendered() -> None:
    data = b"<script>alert(1)</script>"
    key = storage.output_key(uuid4(), 1, sha(data))
    storage.put_output(key, sha(data), len(data), io.BytesIO(data))
    url = storage.presign_download(key, 'dir/evil"\r\nX-Header: 1;name é.html')
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own store
        assert response.read() == data
        assert response.headers["Content-Type"] == "application/octet-stream"
        disposition = response.headers["Content-Disposition"]
        assert response.headers["X-Header"] is None
    assert disposition.startswith('attachment; filename="evil')
    assert disposition.count('"') == 2
    assert disposition.isascii()


def test_a_download_without_a_name_has_one() -> None:
    data = fresh()
    key = storage.output_key(uuid4(), 1, sha(data))
    storage.put_output(key, sha(data), len(data), io.BytesIO(data))
    with urllib.request.urlopen(storage.presign_download(key, "dir/"), timeout=10) as response:  # noqa: S310
        assert 'filename="output"' in response.headers["Content-Disposition"]


def test_an_output_whose_bytes_are_others_is_refused() -> None:
    key = storage.output_key(uuid4(), 1, sha(b"announced"))
    with pytest.raises(StorageUnavailable):
        storage.put_output(key, sha(b"announced"), 5, io.BytesIO(b"other"))


def test_outputs_of_attempts_lie_apart() -> None:
    execution_id = uuid4()
    assert storage.output_key(execution_id, 1, "0" * 64) != storage.output_key(execution_id, 2, "0" * 64)


def test_bytes_that_do_not_have_the_checksum_that_the_store_told_are_wrong_and_not_away() -> None:
    """Not every store tells it with the bytes; ours here does not."""
    with pytest.raises(ArtifactHashMismatch), storage._answers():
        raise FlexibleChecksumError(error_msg="Expected checksum a did not match calculated checksum: b")


def test_nothing_is_open_to_anonymous_readers() -> None:
    data = fresh()
    storage.put_artifact(sha(data), data)
    url = f"{settings.PUNCTUAL_S3_ENDPOINT_URL}/{settings.PUNCTUAL_S3_BUCKET}/{storage.artifact_key(sha(data))}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10)  # noqa: S310
    assert refused.value.code == 403
    refused.value.close()


def test_the_bucket_is_made_once() -> None:
    assert storage.create_bucket() is False
    storage.check_storage()


@pytest.fixture
def elsewhere(settings: Settings) -> Iterator[Settings]:
    """Settings that may be changed, with a client of their own."""
    storage._client().close()
    storage._client.cache_clear()
    yield settings
    storage._client().close()
    storage._client.cache_clear()


def test_a_missing_bucket_is_said_so(elsewhere: Settings) -> None:
    elsewhere.PUNCTUAL_S3_BUCKET = "no-such-bucket"
    with pytest.raises(StorageUnavailable, match="no-such-bucket"):
        storage.check_storage()


def test_an_absent_store_is_unavailable_for_every_verb(elsewhere: Settings) -> None:
    elsewhere.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"
    with pytest.raises(StorageUnavailable):
        storage.put_artifact(sha(b""), b"")


def test_wrong_credentials_are_an_error_that_names_the_refusal(elsewhere: Settings) -> None:
    elsewhere.PUNCTUAL_S3_SECRET_ACCESS_KEY = "wrong"
    with pytest.raises(StorageUnavailable, match="refused"):
        storage.put_artifact(sha(b""), b"")


def test_addresses_are_signed_for_where_others_reach_the_store(settings: Settings) -> None:
    settings.PUNCTUAL_S3_PUBLIC_ENDPOINT_URL = "https://files.example:8443"
    storage._signer.cache_clear()
    try:
        download = storage.presign_download("key", "name")
        upload, _ = storage.presign_output_upload("key", sha(b""), 0)
        assert download.startswith("https://files.example:8443/")
        assert upload.startswith("https://files.example:8443/")
        # Our own calls go where they went.
        storage.check_storage()
    finally:
        storage._signer().close()
        storage._signer.cache_clear()
