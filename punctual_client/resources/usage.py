"""Usage of the caller's quotas."""

from __future__ import annotations

from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, as_object, int_field, optional_int_field, text_field
from punctual_client.resources.base import ApiCalls


@dataclass(frozen=True)
class Usage:
    """Storage in bytes, in total and by kind, and counts with their quotas."""

    parts: tuple[tuple[str, int], ...]
    used: int
    quota: int  # 0: unlimited
    counts: tuple[tuple[str, int | None, int | None], ...]  # name, used, quota
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Usage:
        storage = as_object(data.get("storage"))
        sizes = {name.removesuffix("_bytes"): int_field(storage, name) for name in storage if name.endswith("_bytes")}
        used, quota = int_field(storage, "used_bytes"), int_field(storage, "quota_bytes")
        parts = tuple((name, size) for name, size in sizes.items() if name not in ("used", "quota"))
        counts = []
        for name in ("jobs", "concurrent_executions", "requests_per_minute"):
            count = data.get(name)
            if isinstance(count, dict):
                counts.append((name, optional_int_field(count, "used"), optional_int_field(count, "quota")))
        return cls(parts=parts, used=used, quota=quota, counts=tuple(counts), raw=data)


class UsageCalls(ApiCalls):
    def owner(self) -> str:
        """Return the name of the user whose token this client sends."""
        return text_field(self._transport.get("usage"), "owner")

    def usage(self) -> Usage:
        return Usage.parse(self._transport.get("usage"))
