"""The object store client accepts only announced bytes and raises our own errors."""

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

from jobs.domain.errors import ArtifactHashMismatch, ArtifactNotUploaded, StorageUnavailable
from jobs.storage import s3

pytestmark = pytest.mark.usefixtures("bucket")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fresh(size: int = 40) -> bytes:
    return secrets.token_bytes(size)


def stored(sha256: str) -> bytes:
    return b"".join(s3.read_artifact(sha256))


def put(url: str, headers: dict[str, str], data: bytes) -> int:
    request = urllib.request.Request(url, data=data, method="PUT", headers=headers)  # noqa: S310 - our own store
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("size", [0, 1, 3 * 1024 * 1024 + 7])
def test_artifact_is_read_back(size: int) -> None:
    data = fresh(size)
    s3.put_artifact(sha(data), data)
    assert stored(sha(data)) == data
    assert s3.read_artifact_size(sha(data)) == size


def test_artifact_with_other_bytes_is_refused() -> None:
    with pytest.raises(StorageUnavailable):
        s3.put_artifact(sha(b"announced" + fresh()), b"other bytes")


def test_a_missing_artifact_has_no_size_and_cannot_be_read() -> None:
    assert s3.read_artifact_size(sha(fresh())) is None
    with pytest.raises(ArtifactNotUploaded):
        stored(sha(fresh()))


def test_presigned_upload_accepts_only_the_announced_bytes() -> None:
    data, artifact_id = fresh(), uuid4()
    url, headers = s3.presign_upload(s3.upload_key(artifact_id), sha(data), len(data))
    assert put(url, headers, b"x" * len(data)) >= 400
    longer = headers | {"Content-Length": str(len(data) + 1)}
    assert put(url, longer, data + b"+") >= 400
    with pytest.raises(ArtifactNotUploaded):
        s3.adopt_upload(artifact_id, sha(data), len(data))
    assert put(url, headers, data) == 200
    assert s3.read_artifact_size(sha(data)) is None, "an upload is no artifact until it is adopted"


def test_adopted_upload_moves_to_its_hash_once() -> None:
    data, artifact_id = fresh(), uuid4()
    url, headers = s3.presign_upload(s3.upload_key(artifact_id), sha(data), len(data))
    put(url, headers, data)
    s3.adopt_upload(artifact_id, sha(data), len(data))
    assert stored(sha(data)) == data
    with pytest.raises(ArtifactNotUploaded):
        s3.adopt_upload(artifact_id, sha(data), len(data))


@pytest.mark.parametrize("wrong", ["hash", "size"])
def test_upload_that_differs_from_the_announcement_is_not_adopted(wrong: str) -> None:
    data, artifact_id = fresh(), uuid4()
    url, headers = s3.presign_upload(s3.upload_key(artifact_id), sha(data), len(data))
    put(url, headers, data)
    claimed = sha(fresh()) if wrong == "hash" else sha(data)
    with pytest.raises(ArtifactHashMismatch):
        s3.adopt_upload(artifact_id, claimed, len(data) + (wrong == "size"))
    assert s3.read_artifact_size(claimed) is None


def test_output_is_downloaded_and_never_rendered() -> None:
    data = b"<script>alert(1)</script>"
    key = s3.output_key(uuid4(), 1, sha(data))
    s3.put_output(key, sha(data), len(data), io.BytesIO(data))
    url = s3.presign_download(key, 'dir/evil"\r\nX-Header: 1;name é.html')
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own store
        assert response.read() == data
        assert response.headers["Content-Type"] == "application/octet-stream"
        disposition = response.headers["Content-Disposition"]
        assert response.headers["X-Header"] is None
    assert disposition.startswith('attachment; filename="evil')
    assert disposition.count('"') == 2
    assert disposition.isascii()


def test_download_without_a_name_gets_a_default() -> None:
    data = fresh()
    key = s3.output_key(uuid4(), 1, sha(data))
    s3.put_output(key, sha(data), len(data), io.BytesIO(data))
    with urllib.request.urlopen(s3.presign_download(key, "dir/"), timeout=10) as response:  # noqa: S310
        assert 'filename="output"' in response.headers["Content-Disposition"]


def test_output_with_other_bytes_is_refused() -> None:
    key = s3.output_key(uuid4(), 1, sha(b"announced"))
    with pytest.raises(StorageUnavailable):
        s3.put_output(key, sha(b"announced"), 5, io.BytesIO(b"other"))


def test_attempts_have_separate_output_keys() -> None:
    execution_id = uuid4()
    assert s3.output_key(execution_id, 1, "0" * 64) != s3.output_key(execution_id, 2, "0" * 64)


def test_checksum_mismatch_on_download_is_a_hash_mismatch() -> None:
    """The object store of the tests sends no checksums with the bytes."""
    with pytest.raises(ArtifactHashMismatch), s3._translate_errors():
        raise FlexibleChecksumError(error_msg="Expected checksum a did not match calculated checksum: b")


def test_anonymous_reads_are_refused() -> None:
    data = fresh()
    s3.put_artifact(sha(data), data)
    url = f"{settings.PUNCTUAL_S3_ENDPOINT_URL}/{settings.PUNCTUAL_S3_BUCKET}/{s3.artifact_key(sha(data))}"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10)  # noqa: S310
    assert refused.value.code == 403
    refused.value.close()


def test_bucket_is_created_once() -> None:
    assert s3.create_bucket() is False
    s3.check_storage()


@pytest.fixture
def elsewhere(settings: Settings) -> Iterator[Settings]:
    """Settings that a test may change, with a client of their own."""
    s3._client().close()
    s3._client.cache_clear()
    yield settings
    s3._client().close()
    s3._client.cache_clear()


def test_missing_bucket_is_named(elsewhere: Settings) -> None:
    elsewhere.PUNCTUAL_S3_BUCKET = "no-such-bucket"
    with pytest.raises(StorageUnavailable, match="no-such-bucket"):
        s3.check_storage()


def test_unreachable_object_store_is_unavailable(elsewhere: Settings) -> None:
    elsewhere.PUNCTUAL_S3_ENDPOINT_URL = "http://127.0.0.1:1"
    with pytest.raises(StorageUnavailable):
        s3.put_artifact(sha(b""), b"")


def test_wrong_credentials_are_reported_as_refused(elsewhere: Settings) -> None:
    elsewhere.PUNCTUAL_S3_SECRET_ACCESS_KEY = "wrong"
    with pytest.raises(StorageUnavailable, match="refused"):
        s3.put_artifact(sha(b""), b"")


def test_presigned_urls_use_the_public_endpoint(settings: Settings) -> None:
    settings.PUNCTUAL_S3_PUBLIC_ENDPOINT_URL = "https://files.example:8443"
    s3._signing_client.cache_clear()
    try:
        download = s3.presign_download("key", "name")
        upload, _ = s3.presign_upload("key", sha(b""), 0)
        assert download.startswith("https://files.example:8443/")
        assert upload.startswith("https://files.example:8443/")
        # Our own requests still use the internal endpoint.
        s3.check_storage()
    finally:
        s3._signing_client().close()
        s3._signing_client.cache_clear()
