"""The verbs about where jobs run and wait, and whether the server itself is well."""

from __future__ import annotations

from cli.answers import JsonObject
from cli.calls import Calls, segment
from cli.records import Queue, Worker
from cli.transport import Probe


class FleetCalls(Calls):
    def probe(self, path: str) -> Probe:
        return self._transport.probe(path)

    def workers(self, *, limit: int = 100) -> list[Worker]:
        return [Worker.parse(item) for item in self._listing("workers", {}, limit)]

    def drain_worker(self, worker_id: str) -> Worker:
        return Worker.parse(self._transport.send("POST", f"workers/{segment(worker_id)}/drain"))

    def queues(self, *, limit: int = 500) -> list[Queue]:
        return [Queue.parse(item) for item in self._listing("queues", {}, limit)]

    def create_queue(self, name: str, fields: JsonObject) -> Queue:
        return Queue.parse(self._transport.send("POST", "queues", {"name": name, **fields}))

    def edit_queue(self, queue_id: str, changes: JsonObject) -> Queue:
        return Queue.parse(self._transport.send("PATCH", f"queues/{segment(queue_id)}", changes))

    def delete_queue(self, queue_id: str) -> None:
        self._transport.send("DELETE", f"queues/{segment(queue_id)}")
