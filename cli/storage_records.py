"""What the server answers of files: artifacts, outputs and how much is kept, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field

from cli.answers import JsonObject, as_object, number, optional_number, text


@dataclass(frozen=True)
class Output:
    name: str
    size: int
    sha256: str
    url: str = field(repr=False)
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Output:
        return cls(
            name=text(data, "name"),
            size=number(data, "size"),
            sha256=text(data, "sha256"),
            url=text(data, "url"),
            raw=data,
        )


@dataclass(frozen=True)
class Upload:
    url: str = field(repr=False)
    method: str
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Artifact:
    """`upload` is how to send its bytes, or None if the server has them already."""

    id: str
    status: str
    upload: Upload | None

    @classmethod
    def parse(cls, data: JsonObject) -> Artifact:
        upload = None
        if data.get("upload") is not None:
            given = as_object(data["upload"])
            headers = as_object(given.get("headers") or {})
            upload = Upload(
                url=text(given, "url"),
                method=text(given, "method"),
                headers=tuple((name, text(headers, name)) for name in headers),
            )
        return cls(id=text(data, "id"), status=text(data, "status"), upload=upload)


@dataclass(frozen=True)
class KeptArtifact:
    """As it is listed."""

    id: str
    status: str
    sha256: str
    size: int
    created_at: str
    in_use: bool
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> KeptArtifact:
        return cls(
            id=text(data, "id"),
            status=text(data, "status"),
            sha256=text(data, "sha256"),
            size=number(data, "size"),
            created_at=text(data, "created_at"),
            in_use=data.get("in_use") is True,
            raw=data,
        )


@dataclass(frozen=True)
class StorageUse:
    """Storage in bytes; `parts` by what they are of, as the server tells them apart."""

    parts: tuple[tuple[str, int], ...]
    used: int
    quota: int  # 0: without limit
    counts: tuple[tuple[str, int | None, int | None], ...]  # what is counted, how many there are, and may be
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> StorageUse:
        storage = as_object(data.get("storage"))
        sizes = {name.removesuffix("_bytes"): number(storage, name) for name in storage if name.endswith("_bytes")}
        used, quota = number(storage, "used_bytes"), number(storage, "quota_bytes")
        parts = tuple((name, size) for name, size in sizes.items() if name not in ("used", "quota"))
        counts = []
        for name in ("jobs", "concurrent_executions", "requests_per_minute"):
            told = data.get(name)
            if isinstance(told, dict):
                counts.append((name, optional_number(told, "used"), optional_number(told, "quota")))
        return cls(parts=parts, used=used, quota=quota, counts=tuple(counts), raw=data)
