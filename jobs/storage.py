"""The object store, through boto3, and nothing else does.

Artifacts are stored under their own SHA-256 and never overwritten with anything else; outputs under their attempt; logs
under the pack that they were archived in.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence
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

from jobs import conf
from jobs.errors import ArchivedLogUnreadable, ArtifactHashMismatch, ArtifactNotUploaded, StorageUnavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from urllib3.response import HTTPResponse

logger = logging.getLogger(__name__)

CHUNK_BYTES = 128 * 1024
# As many as one request lists or deletes.
PAGE_OBJECTS = 1000
UPLOADS, OUTPUTS, LOG_PACKS = "uploads/", "outputs/", "logs/"
MISSING = frozenset({"404", "NoSuchKey", "NotFound"})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one answer is waited for, and how often it is asked for."""

    read_seconds: float
    tries: int


# Somebody waits for an answer of ours meanwhile.
REQUEST = Patience(read_seconds=6, tries=2)
# Whoever moves bytes, or deletes many, tries again by a rule of its own.
TRANSFER = Patience(read_seconds=30, tries=1)


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    modified_at: datetime
    size: int


def artifact_key(sha256: str) -> str:
    return f"artifacts/sha256/{sha256}"


def upload_key(artifact_id: UUID) -> str:
    """Where an owner's own upload waits: knowing a hash proves nothing, so bytes that others stored are no shortcut."""
    return f"{UPLOADS}{artifact_id}"


def output_key(execution_id: UUID, attempt: int, sha256: str) -> str:
    return f"{OUTPUTS}{execution_id}/{attempt}/{sha256}"


def log_pack_key(pack_id: UUID) -> str:
    return f"{LOG_PACKS}{pack_id}.jsonl.gz"


def parse_log_pack_key(key: str) -> UUID | None:
    """The pack's id; None: it is not such a key."""
    try:
        pack_id = UUID(key.removeprefix(LOG_PACKS).removesuffix(".jsonl.gz"))
    except ValueError:
        return None
    return pack_id if log_pack_key(pack_id) == key else None


def parse_upload_key(key: str) -> UUID | None:
    """The artifact's id; None: it is not such a key."""
    try:
        artifact_id = UUID(key.removeprefix(UPLOADS))
    except ValueError:
        return None
    return artifact_id if upload_key(artifact_id) == key else None


def parse_output_key(key: str) -> tuple[UUID, int, str] | None:
    """Execution, attempt and hash; None: it is not such a key."""
    try:
        execution, attempt, sha256 = key.removeprefix(OUTPUTS).split("/")
        found = UUID(execution), int(attempt), sha256
    except ValueError:
        return None
    return found if output_key(*found) == key else None


def put_artifact(sha256: str, data: bytes) -> None:
    with _answers():
        _client().put_object(
            Bucket=settings.PUNCTUAL_S3_BUCKET, Key=artifact_key(sha256), Body=data, ChecksumSHA256=_base64(sha256)
        )


def put_output(key: str, sha256: str, size: int, body: IO[bytes]) -> None:
    with _answers():
        _client(TRANSFER).put_object(
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
    """A part of it in pieces; the reader verifies them. Raises before the first piece if the store does not answer."""
    try:
        with _answers():
            body = _client().get_object(
                Bucket=settings.PUNCTUAL_S3_BUCKET,
                Key=log_pack_key(pack_id),
                Range=f"bytes={offset}-{offset + length - 1}",
            )["Body"]
            # Whoever stops reading gives the connection back.
            with closing(body):
                yield from body.iter_chunks(CHUNK_BYTES)
    except ArtifactNotUploaded as error:
        raise ArchivedLogUnreadable from error


def presign_artifact_upload(artifact_id: UUID, sha256: str, size: int) -> tuple[str, dict[str, str]]:
    """A URL that takes exactly these bytes, and the headers that must go with them."""
    return _presign_upload(upload_key(artifact_id), sha256, size)


def _presign_upload(key: str, sha256: str, size: int) -> tuple[str, dict[str, str]]:
    url = _signer().generate_presigned_url(
        "put_object",
        Params={
            "Bucket": settings.PUNCTUAL_S3_BUCKET,
            "Key": key,
            "ContentLength": size,
            "ChecksumSHA256": _base64(sha256),
        },
        ExpiresIn=conf.UPLOAD_URL_SECONDS,
    )
    return url, {"Content-Length": str(size), "x-amz-checksum-sha256": _base64(sha256)}


def presign_output_upload(key: str, sha256: str, size: int) -> tuple[str, dict[str, str]]:
    """As for artifacts: exactly these bytes, under exactly this key."""
    return _presign_upload(key, sha256, size)


def stored_outputs(execution_id: UUID, attempt: int) -> set[tuple[str, int]]:
    """Hash and size of all outputs of an attempt that are stored; the store took nothing else under their keys."""
    prefix = f"{OUTPUTS}{execution_id}/{attempt}/"
    # Sorts after every hexadecimal name.
    pages = list_objects(prefix, before=f"{prefix}~")
    return {(each.key.removeprefix(prefix), each.size) for page in pages for each in page}


def adopt_upload(artifact_id: UUID, sha256: str, size: int) -> None:
    """Files an upload under its hash, once the store confirms that its bytes are the announced ones."""
    bucket, upload = settings.PUNCTUAL_S3_BUCKET, upload_key(artifact_id)
    with _answers():
        stored = _client().head_object(Bucket=bucket, Key=upload, ChecksumMode="ENABLED")
    # The copy is made inside the store, so the hash that the store computed on arrival is the proof.
    if stored["ContentLength"] != size or stored.get("ChecksumSHA256") != _base64(sha256):
        raise ArtifactHashMismatch
    if artifact_size(sha256) != size:
        with _answers():
            _client(TRANSFER).copy_object(
                Bucket=bucket, Key=artifact_key(sha256), CopySource={"Bucket": bucket, "Key": upload}
            )
    with _answers():
        _client().delete_object(Bucket=bucket, Key=upload)


def presign_download(key: str, filename: str, *, seconds: int = conf.DOWNLOAD_URL_SECONDS) -> str:
    """A short-lived URL that a browser saves and never renders."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in filename.rsplit("/", 1)[-1])
    return _signer().generate_presigned_url(
        "get_object",
        Params={
            "Bucket": settings.PUNCTUAL_S3_BUCKET,
            "Key": key,
            "ResponseContentDisposition": f'attachment; filename="{safe or "output"}"',
            "ResponseContentType": "application/octet-stream",
        },
        ExpiresIn=seconds,
    )


def artifact_size(sha256: str) -> int | None:
    """How many bytes are stored under this hash; None if nothing is."""
    try:
        with _answers():
            return _client().head_object(Bucket=settings.PUNCTUAL_S3_BUCKET, Key=artifact_key(sha256))["ContentLength"]
    except ArtifactNotUploaded:
        return None


def read_artifact(sha256: str) -> Iterator[bytes]:
    """The stored bytes in pieces, none of which waits to be full; the reader verifies them."""
    with _answers():
        answer = _client(TRANSFER).get_object(Bucket=settings.PUNCTUAL_S3_BUCKET, Key=artifact_key(sha256))
        # Closed: one that is not read to its end cannot be used for another request.
        with answer["Body"] as body:
            yield from _as_it_comes(cast("HTTPResponse", body), answer["ContentLength"])


def _as_it_comes(body: HTTPResponse, length: int) -> Iterator[bytes]:
    """boto3 itself would wait for a whole piece, however slowly it comes, and nobody could stop in between."""
    while length > 0:
        try:
            piece = body.read1(min(CHUNK_BYTES, length))
        except HTTPError as error:
            raise StorageUnavailable(f"The object store broke off: {error}") from error
        if not piece:
            raise StorageUnavailable("The object store broke off.")
        length -= len(piece)
        yield piece


def list_objects(prefix: str, *, before: str) -> Iterator[list[StoredObject]]:
    """Pages of what is stored under the prefix, in order of their keys, up to and without the key `before`."""
    with _answers():
        pages = (
            _client(TRANSFER)
            .get_paginator("list_objects_v2")
            .paginate(Bucket=settings.PUNCTUAL_S3_BUCKET, Prefix=prefix, PaginationConfig={"PageSize": PAGE_OBJECTS})
        )
        for page in pages:
            found = [StoredObject(each["Key"], each["LastModified"], each["Size"]) for each in page.get("Contents", [])]
            yield [each for each in found if each.key < before]
            if found and found[-1].key >= before:
                return


def delete_objects(keys: Sequence[str]) -> None:
    """Deletes what there is of them; that some are gone already is no error."""
    for start in range(0, len(keys), PAGE_OBJECTS):
        with _answers():
            answer = _client(TRANSFER).delete_objects(
                Bucket=settings.PUNCTUAL_S3_BUCKET,
                Delete={"Objects": [{"Key": key} for key in keys[start : start + PAGE_OBJECTS]], "Quiet": True},
            )
        refused = [each for each in answer.get("Errors", []) if each.get("Code") not in MISSING]
        if refused:
            logger.warning("The object store did not delete %s: %s", refused[0].get("Key"), refused[0].get("Message"))
            raise StorageUnavailable(f"The object store refused to delete {len(refused)} objects.")


def create_bucket() -> bool:
    """False if it was there already."""
    try:
        with _answers():
            _client().head_bucket(Bucket=settings.PUNCTUAL_S3_BUCKET)
    except ArtifactNotUploaded:
        with _answers():
            _client().create_bucket(Bucket=settings.PUNCTUAL_S3_BUCKET)
        return True
    return False


def check_storage() -> None:
    """Raises StorageUnavailable unless the bucket answers."""
    try:
        with _answers():
            _client().head_bucket(Bucket=settings.PUNCTUAL_S3_BUCKET)
    except ArtifactNotUploaded as error:
        raise StorageUnavailable(f"The bucket {settings.PUNCTUAL_S3_BUCKET} does not exist; create it.") from error


@contextmanager
def _answers() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in MISSING:
            raise ArtifactNotUploaded from error
        logger.warning("The object store refused a request: %s", error)
        raise StorageUnavailable(f"The object store refused the request ({code or 'no reason given'}).") from error
    except FlexibleChecksumError as error:
        # The store said what it stored, and something else came.
        raise ArtifactHashMismatch from error
    except BotoCoreError as error:
        logger.warning("The object store did not answer: %s", error)
        raise StorageUnavailable from error


def _base64(sha256: str) -> str:
    return base64.b64encode(bytes.fromhex(sha256)).decode()


@lru_cache(maxsize=2)
def _client(patience: Patience = REQUEST) -> S3Client:
    return _make_client(settings.PUNCTUAL_S3_ENDPOINT_URL, patience)


@lru_cache(maxsize=1)
def _signer() -> S3Client:
    """Signs addresses for others, and never calls: the host is part of what is signed."""
    return _make_client(settings.PUNCTUAL_S3_PUBLIC_ENDPOINT_URL or settings.PUNCTUAL_S3_ENDPOINT_URL, REQUEST)


def _make_client(endpoint_url: str | None, patience: Patience) -> S3Client:
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=settings.PUNCTUAL_S3_REGION,
        aws_access_key_id=settings.PUNCTUAL_S3_ACCESS_KEY_ID,
        aws_secret_access_key=settings.PUNCTUAL_S3_SECRET_ACCESS_KEY,
        config=Config(
            signature_version="s3v4",
            connect_timeout=3,
            read_timeout=patience.read_seconds,
            retries={"total_max_attempts": patience.tries, "mode": "standard"},
            max_pool_connections=32,
            request_checksum_calculation=settings.PUNCTUAL_S3_CHECKSUMS,
            response_checksum_validation=settings.PUNCTUAL_S3_CHECKSUMS,
            s3={"addressing_style": "path" if endpoint_url else "auto"},
        ),
    )
