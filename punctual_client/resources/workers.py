"""Workers: list and drain them."""

from __future__ import annotations

from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, optional_int_field, optional_text_field, text_field
from punctual_client.resources.base import ApiCalls, path_segment


@dataclass(frozen=True)
class Worker:
    id: str
    name: str
    status: str
    host: str
    pool: str
    slots: int | None
    runs: int | None  # None: not reported yet
    load: float | None
    used_at: str | None
    refusal: str  # why it refuses work; empty: it does not
    capabilities: tuple[str, ...]
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Worker:
        capabilities = data.get("capabilities") or []
        names = capabilities if isinstance(capabilities, list | dict) else []
        reported = data.get("usage")
        usage: JsonObject = reported if isinstance(reported, dict) else {}
        load = usage.get("load")
        return cls(
            id=text_field(data, "id"),
            name=optional_text_field(data, "name") or "",
            status=text_field(data, "status"),
            host=optional_text_field(data, "host") or "",
            pool=optional_text_field(data, "pool") or "",
            slots=optional_int_field(data, "slots"),
            runs=optional_int_field(usage, "runs"),
            load=float(load) if isinstance(load, int | float) else None,
            used_at=optional_text_field(usage, "at"),
            refusal=optional_text_field(data, "refusal") or "",
            capabilities=tuple(sorted(str(name) for name in names)),
            raw=data,
        )

    @property
    def capabilities_description(self) -> str:
        """`bash, python 3.11.2`: with the version where the worker reported one."""
        details = self.raw.get("details")
        runtimes = details.get("runtimes") if isinstance(details, dict) else None
        versions = runtimes if isinstance(runtimes, dict) else {}
        return ", ".join(f"{name} {versions.get(name, '')}".rstrip() for name in self.capabilities)


class WorkerCalls(ApiCalls):
    def workers(self, *, limit: int = 100) -> list[Worker]:
        return [Worker.parse(item) for item in self._list("workers", {}, limit)]

    def drain_worker(self, worker_id: str) -> Worker:
        return Worker.parse(self._transport.send("POST", f"workers/{path_segment(worker_id)}/drain"))
