"""The object store client: the only module that uses boto3.

Artifacts are stored under their SHA-256 and never overwritten with other bytes, outputs under their attempt, archived
logs under their pack.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import IO, TYPE_CHECKING, cast
from uuid import UUID

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError
from django.conf import settings
from urllib3.exceptions import HTTPError

from jobs.domain import limits
from jobs.domain.errors import ArchivedLogUnreadable, ArtifactHashMismatch, ArtifactNotUploaded, StorageUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from urllib3.response import HTTPResponse

logger = logging.getLogger(__name__)

CHUNK_BYTES = 128 * 1024
PAGE_OBJECTS = 1000  # S3's limit per list or delete request
UPLOADS_PREFIX, OUTPUTS_PREFIX, LOG_PACKS_PREFIX = "uploads/", "outputs/", "logs/"
MISSING_CODES = frozenset({"404", "NoSuchKey", "NotFound"})


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """The read timeout and the number of tries of a request."""

    read_timeout_seconds: float
    tries: int


# For calls during a user's request.
REQUEST_TIMEOUTS = ClientTimeouts(read_timeout_seconds=6, tries=2)
# For transfers and bulk deletions, whose callers retry.
TRANSFER_TIMEOUTS = ClientTimeouts(read_timeout_seconds=30, tries=1)


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    modified_at: datetime
    size: int


def artifact_key(sha256: str) -> str:
    return f"artifacts/sha256/{sha256}"


def upload_key(artifact_id: UUID) -> str:
    """Return the key of an owner's own upload. Knowing a hash does not give access to bytes that others stored."""
    return f"{UPLOADS_PREFIX}{artifact_id}"


def output_key(execution_id: UUID, attempt: int, sha256: str) -> str:
    return f"{OUTPUTS_PREFIX}{execution_id}/{attempt}/{sha256}"


def log_pack_key(pack_id: UUID) -> str:
    return f"{LOG_PACKS_PREFIX}{pack_id}.jsonl.gz"


def parse_log_pack_key(key: str) -> UUID | None:
    """Return the pack's id, or None for another kind of key."""
    return _parse_id(key, log_pack_key, key.removeprefix(LOG_PACKS_PREFIX).removesuffix(".jsonl.gz"))


def parse_upload_key(key: str) -> UUID | None:
    """Return the artifact's id, or None for another kind of key."""
    return _parse_id(key, upload_key, key.removeprefix(UPLOADS_PREFIX))


def _parse_id(key: str, format_key: Callable[[UUID], str], text: str) -> UUID | None:
    try:
        identifier = UUID(text)
    except ValueError:
        return None
    return identifier if format_key(identifier) == key else None


def parse_output_key(key: str) -> tuple[UUID, int, str] | None:
    """Return execution, attempt and hash, or None for another kind of key."""
    try:
        execution, attempt, sha256 = key.removeprefix(OUTPUTS_PREFIX).split("/")
        found = UUID(execution), int(attempt), sha256
    except ValueError:
        return None
    return found if output_key(*found) == key else None


def put_artifact(sha256: str, data: bytes) -> None:
    with _translate_errors():
        _client().put_object(
            Bucket=settings.PUNCTUAL_S3_BUCKET, Key=artifact_key(sha256), Body=data, ChecksumSHA256=_base64(sha256)
        )


def put_output(key: str, sha256: str, size: int, body: IO[bytes]) -> None:
    with _translate_errors():
        _client(TRANSFER_TIMEOUTS).put_object(
            Bucket=settings.PUNCTUAL_S3_BUCKET,
            Key=key,
            Body=body,
            ContentLength=size,
            ChecksumSHA256=_base64(sha256),
            ContentType="application/octet-stream",
        )


def put_log_pack(pack_id: UUID, sha256: str, size: int, body: IO[bytes]) -> None:
    put_output(log_pack_key(pack_id), sha256, size, body)


def read_log_pack(pack_id: UUID, offset: int, length: int) -> Iterator[bytes]:
    """Yield a byte range in pieces, unverified. Raises before the first piece if the object store is unavailable."""
    try:
        with _translate_errors():
            body = _client().get_object(
                Bucket=settings.PUNCTUAL_S3_BUCKET,
                Key=log_pack_key(pack_id),
                Range=f"bytes={offset}-{offset + length - 1}",
            )["Body"]
            # Releases the connection when the caller stops reading.
            with closing(body):
                yield from body.iter_chunks(CHUNK_BYTES)
    except ArtifactNotUploaded as error:
        raise ArchivedLogUnreadable from error


def presign_upload(key: str, sha256: str, size: int) -> tuple[str, dict[str, str]]:
    """Return a URL that accepts exactly these bytes under this key, and the headers that the request must have."""
    url = _signing_client().generate_presigned_url(
        "put_object",
        Params={
            "Bucket": settings.PUNCTUAL_S3_BUCKET,
            "Key": key,
            "ContentLength": size,
            "ChecksumSHA256": _base64(sha256),
        },
        ExpiresIn=limits.UPLOAD_URL_SECONDS,
    )
    return url, {"Content-Length": str(size), "x-amz-checksum-sha256": _base64(sha256)}


def list_stored_outputs(execution_id: UUID, attempt: int) -> set[tuple[str, int]]:
    """Return hash and size of an attempt's stored outputs; the object store verified both on upload."""
    prefix = f"{OUTPUTS_PREFIX}{execution_id}/{attempt}/"
    # "~" sorts after every hexadecimal name.
    pages = list_objects(prefix, before=f"{prefix}~")
    return {(each.key.removeprefix(prefix), each.size) for page in pages for each in page}


def adopt_upload(artifact_id: UUID, sha256: str, size: int) -> None:
    """Move an upload to its hash, once the object store confirms size and hash."""
    bucket, upload = settings.PUNCTUAL_S3_BUCKET, upload_key(artifact_id)
    with _translate_errors():
        stored = _client().head_object(Bucket=bucket, Key=upload, ChecksumMode="ENABLED")
    # The object store computed the hash on arrival and copies internally, so its hash is proof.
    if stored["ContentLength"] != size or stored.get("ChecksumSHA256") != _base64(sha256):
        raise ArtifactHashMismatch
    if read_artifact_size(sha256) != size:
        with _translate_errors():
            _client(TRANSFER_TIMEOUTS).copy_object(
                Bucket=bucket, Key=artifact_key(sha256), CopySource={"Bucket": bucket, "Key": upload}
            )
    with _translate_errors():
        _client().delete_object(Bucket=bucket, Key=upload)


def presign_download(key: str, filename: str, *, seconds: int = limits.DOWNLOAD_URL_SECONDS) -> str:
    """Return a short-lived URL that a browser downloads and never renders."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in filename.rsplit("/", 1)[-1])
    return _signing_client().generate_presigned_url(
        "get_object",
        Params={
            "Bucket": settings.PUNCTUAL_S3_BUCKET,
            "Key": key,
            "ResponseContentDisposition": f'attachment; filename="{safe or "output"}"',
            "ResponseContentType": "application/octet-stream",
        },
        ExpiresIn=seconds,
    )


def read_artifact_size(sha256: str) -> int | None:
    """Return the size stored under this hash, or None if there is no object."""
    try:
        with _translate_errors():
            return _client().head_object(Bucket=settings.PUNCTUAL_S3_BUCKET, Key=artifact_key(sha256))["ContentLength"]
    except ArtifactNotUploaded:
        return None


def read_artifact(sha256: str) -> Iterator[bytes]:
    """Yield the stored bytes as they arrive, unverified."""
    with _translate_errors():
        response = _client(TRANSFER_TIMEOUTS).get_object(Bucket=settings.PUNCTUAL_S3_BUCKET, Key=artifact_key(sha256))
        # Close it: a connection whose response was not read to the end cannot be reused.
        with response["Body"] as body:
            yield from _read_available(cast("HTTPResponse", body), response["ContentLength"])


def _read_available(body: HTTPResponse, length: int) -> Iterator[bytes]:
    """Yield bytes as they arrive: boto3 waits for whole pieces, and a slow one could not be interrupted."""
    while length > 0:
        try:
            piece = body.read1(min(CHUNK_BYTES, length))
        except HTTPError as error:
            raise StorageUnavailable(f"The object store closed the connection: {error}") from error
        if not piece:
            raise StorageUnavailable("The object store closed the connection.")
        length -= len(piece)
        yield piece


def list_objects(prefix: str, *, before: str) -> Iterator[list[StoredObject]]:
    """Yield pages of the objects under a prefix, in key order, up to but excluding the key `before`."""
    with _translate_errors():
        pages = (
            _client(TRANSFER_TIMEOUTS)
            .get_paginator("list_objects_v2")
            .paginate(Bucket=settings.PUNCTUAL_S3_BUCKET, Prefix=prefix, PaginationConfig={"PageSize": PAGE_OBJECTS})
        )
        for page in pages:
            found = [StoredObject(each["Key"], each["LastModified"], each["Size"]) for each in page.get("Contents", [])]
            yield [each for each in found if each.key < before]
            if found and found[-1].key >= before:
                return


def delete_objects(keys: Sequence[str]) -> None:
    """Delete the objects; missing ones are no error."""
    for start in range(0, len(keys), PAGE_OBJECTS):
        with _translate_errors():
            response = _client(TRANSFER_TIMEOUTS).delete_objects(
                Bucket=settings.PUNCTUAL_S3_BUCKET,
                Delete={"Objects": [{"Key": key} for key in keys[start : start + PAGE_OBJECTS]], "Quiet": True},
            )
        refused = [each for each in response.get("Errors", []) if each.get("Code") not in MISSING_CODES]
        if refused:
            logger.warning("The object store did not delete %s: %s", refused[0].get("Key"), refused[0].get("Message"))
            raise StorageUnavailable(f"The object store refused to delete {len(refused)} objects.")


def create_bucket() -> bool:
    """Create the bucket; return False if it exists."""
    try:
        with _translate_errors():
            _client().head_bucket(Bucket=settings.PUNCTUAL_S3_BUCKET)
    except ArtifactNotUploaded:
        with _translate_errors():
            _client().create_bucket(Bucket=settings.PUNCTUAL_S3_BUCKET)
        return True
    return False


def check_storage() -> None:
    """Raise StorageUnavailable unless the bucket answers."""
    try:
        with _translate_errors():
            _client().head_bucket(Bucket=settings.PUNCTUAL_S3_BUCKET)
    except ArtifactNotUploaded as error:
        raise StorageUnavailable(f"The bucket {settings.PUNCTUAL_S3_BUCKET} does not exist; create it.") from error


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in MISSING_CODES:
            raise ArtifactNotUploaded from error
        logger.warning("The object store refused a request: %s", error)
        raise StorageUnavailable(f"The object store refused the request ({code or 'no reason given'}).") from error
    except FlexibleChecksumError as error:
        # The response does not match the checksum that the object store sent with it.
        raise ArtifactHashMismatch from error
    except BotoCoreError as error:
        logger.warning("The object store did not answer: %s", error)
        raise StorageUnavailable from error


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


@lru_cache(maxsize=2)
def _client(timeouts: ClientTimeouts = REQUEST_TIMEOUTS) -> S3Client:
    return _make_client(settings.PUNCTUAL_S3_ENDPOINT_URL, timeouts)


@lru_cache(maxsize=1)
def _signing_client() -> S3Client:
    """Return the client that presigns URLs with the public endpoint: signatures include the host."""
    return _make_client(settings.PUNCTUAL_S3_PUBLIC_ENDPOINT_URL or settings.PUNCTUAL_S3_ENDPOINT_URL, REQUEST_TIMEOUTS)


def _make_client(endpoint_url: str | None, timeouts: ClientTimeouts) -> S3Client:
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=settings.PUNCTUAL_S3_REGION,
        aws_access_key_id=settings.PUNCTUAL_S3_ACCESS_KEY_ID,
        aws_secret_access_key=settings.PUNCTUAL_S3_SECRET_ACCESS_KEY,
        config=Config(
            signature_version="s3v4",
            connect_timeout=3,
            read_timeout=timeouts.read_timeout_seconds,
            retries={"total_max_attempts": timeouts.tries, "mode": "standard"},
            max_pool_connections=32,
            request_checksum_calculation=settings.PUNCTUAL_S3_CHECKSUMS,
            response_checksum_validation=settings.PUNCTUAL_S3_CHECKSUMS,
            s3={"addressing_style": "path" if endpoint_url else "auto"},
        ),
    )
