"""Queues: list, create, tune and delete them."""

from __future__ import annotations

from dataclasses import dataclass, field

from punctual_client.json_fields import JsonObject, int_field, optional_int_field, text_field
from punctual_client.resources.base import ApiCalls, path_segment


@dataclass(frozen=True)
class Queue:
    id: str
    name: str
    pool: str
    priority: int
    max_concurrency: int | None
    paused: bool
    raw: JsonObject = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: JsonObject) -> Queue:
        return cls(
            id=text_field(data, "id"),
            name=text_field(data, "name"),
            pool=text_field(data, "pool"),
            priority=int_field(data, "priority"),
            max_concurrency=optional_int_field(data, "max_concurrency"),
            paused=data.get("paused") is True,
            raw=data,
        )


class QueueCalls(ApiCalls):
    def queues(self, *, limit: int = 500) -> list[Queue]:
        return [Queue.parse(item) for item in self._list("queues", {}, limit)]

    def create_queue(self, name: str, fields: JsonObject) -> Queue:
        return Queue.parse(self._transport.send("POST", "queues", {"name": name, **fields}))

    def edit_queue(self, queue_id: str, changes: JsonObject) -> Queue:
        return Queue.parse(self._transport.send("PATCH", f"queues/{path_segment(queue_id)}", changes))

    def delete_queue(self, queue_id: str) -> None:
        self._transport.send("DELETE", f"queues/{path_segment(queue_id)}")
