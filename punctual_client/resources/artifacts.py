"""Artifacts: programs and files that jobs run, uploaded straight to the object store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, as_object, int_field, text_field
from punctual_client.resources.base import ApiCalls, path_segment


@dataclass(frozen=True)
class UploadRequest:
    """The presigned request that uploads the bytes of an artifact."""

    url: str = field(repr=False)
    method: str
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CreatedArtifact:
    """`upload` is None when the server already has the bytes."""

    id: str
    status: str
    upload: UploadRequest | None

    @classmethod
    def parse(cls, data: JsonObject) -> CreatedArtifact:
        upload = None
        if data.get("upload") is not None:
            request = as_object(data["upload"])
            headers = as_object(request.get("headers") or {})
            upload = UploadRequest(
                url=text_field(request, "url"),
                method=text_field(request, "method"),
                headers=tuple((name, text_field(headers, name)) for name in headers),
            )
        return cls(id=text_field(data, "id"), status=text_field(data, "status"), upload=upload)


@dataclass(frozen=True)
class StoredArtifact:
    id: str
    status: str
    sha256: str
    size: int
    created_at: str
    in_use: bool
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> StoredArtifact:
        return cls(
            id=text_field(data, "id"),
            status=text_field(data, "status"),
            sha256=text_field(data, "sha256"),
            size=int_field(data, "size"),
            created_at=text_field(data, "created_at"),
            in_use=data.get("in_use") is True,
            raw=data,
        )


class ArtifactCalls(ApiCalls):
    def create_artifact(self, *, sha256: str, size: int) -> CreatedArtifact:
        return CreatedArtifact.parse(self._transport.send("POST", "artifacts", {"sha256": sha256, "size": size}))

    def upload_artifact(self, upload: UploadRequest, content: Iterable[bytes], *, size: int) -> None:
        # Without an explicit length httpx sends an iterator chunked, which object stores refuse.
        headers = {name: value for name, value in upload.headers if name.lower() != "content-length"}
        self._transport.upload(upload.method, upload.url, {**headers, "Content-Length": str(size)}, content)

    def complete_artifact(self, artifact_id: str) -> CreatedArtifact:
        return CreatedArtifact.parse(self._transport.send("POST", f"artifacts/{path_segment(artifact_id)}/complete"))

    def artifacts(self, *, limit: int = 50) -> list[StoredArtifact]:
        return [StoredArtifact.parse(item) for item in self._list("artifacts", {}, limit)]

    def artifact_sha256(self, artifact_id: str) -> str:
        return text_field(self._transport.get(f"artifacts/{path_segment(artifact_id)}"), "sha256")

    def delete_artifact(self, artifact_id: str) -> None:
        self._transport.send("DELETE", f"artifacts/{path_segment(artifact_id)}")
